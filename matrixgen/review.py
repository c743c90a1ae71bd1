"""Tiers against telemetry: what is served, and what the tiers say of it."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from matrixgen.errors import InvalidValue
from matrixgen.findings import Problem, Severity
from matrixgen.source import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matrixgen.content import Manifest
    from matrixgen.family import Family

NAMES = ("family", "architecture", "arch", "general.architecture", "model", "name")
NUMBERS = ("requests", "count", "hits")
MOST = 10**15


class Review(NamedTuple):
    """`requests` by family; an architecture that is shared counts for each of its rows. `commands` are `matrixgen move` lines."""

    requests: Mapping[str, int]
    problems: tuple[Problem, ...]
    commands: tuple[str, ...]


def read_telemetry(name: str, text: str) -> dict[str, int]:
    """Requests by family or architecture.

    JSON: an object `{name: requests}`, or a list of objects with one of NAMES and one of NUMBERS. CSV: the same as columns.
    Names are lower-cased and `_` becomes `-`. Raises InvalidValue with the row that is wrong.
    """
    pairs = _json_pairs(name, text) if text.lstrip()[:1] in ("{", "[") else _csv_pairs(name, text)
    requests: dict[str, int] = {}
    for number, (label, value) in enumerate(pairs, 1):
        key = str(label).strip().lower().replace("_", "-")
        if not key or not key.isprintable() or len(key) > 100:
            raise InvalidValue(f"{name}, row {number}: {ascii(label)[:60]} is not the name of a family or architecture")
        requests[key] = requests.get(key, 0) + _number(name, number, value)
    if not sum(requests.values()):
        raise InvalidValue(f"{name} counts no request at all; a review of no traffic would call every family idle")
    return requests


def review(manifest: Manifest, telemetry: Mapping[str, int], *, share: float) -> Review:
    """Compare. A family is in production when it has at least `share` (0 to 1) of all requests."""
    total = sum(telemetry.values())
    known: dict[str, int] = {}
    matched: set[str] = set()
    for family in manifest.families:
        names = {family.family, *([family.arch] if family.arch else [])}
        found = {name for name in names if name in telemetry}
        matched |= found
        known[family.family] = sum(telemetry[name] for name in found)
    problems: list[Problem] = []
    commands: list[str] = []
    for index, family in enumerate(manifest.families):
        if (said := _said(family, known[family.family], total, share)) is not None:
            id_, severity, what, tier = said
            command = f"matrixgen move {family.family} --tier {tier}"
            at = f"/families/{index}/tier"
            problems.append(Problem(id_, "families.json", at, what, f"`{command}`, or say why not", severity))
            commands.append(command)
    for name in sorted(telemetry.keys() - matched):
        if telemetry[name]:
            what = f"{ascii(name)[1:-1]} has {telemetry[name]} requests and no row"
            problems.append(Problem("MG063", "families.json", "/families", what, "add a row for it", "warning"))
    return Review(known, tuple(problems), tuple(commands))


def _said(family: Family, requests: int, total: int, share: float) -> tuple[str, Severity, str, int] | None:
    """(finding, severity, what, the tier that would fit) where tier and traffic disagree."""
    portion = f"{requests} requests, {100 * requests / total:.2f} % of all"
    produced = requests > 0 and requests >= share * total
    if family.tier == 3 and requests:
        return "MG060", "error", f"tombstone {family.family} still has traffic: {portion}", 2
    if family.tier == 2 and produced:
        return "MG061", "warning", f"{family.family} of tier 2 is in production: {portion}", 1
    if family.tier == 1 and not requests:
        return "MG062", "warning", f"nobody serves {family.family} of tier 1", 2
    if family.tier is None and produced:
        return "MG061", "warning", f"{family.family} is in no tier and in production: {portion}", 2
    return None


def _json_pairs(name: str, text: str) -> Iterable[tuple[Any, Any]]:
    document = parse(name, text)
    if document.findings:
        raise InvalidValue(f"{name}, line {document.findings[0].line}: {document.findings[0].message}")
    data = document.data
    if isinstance(data, dict):
        return list(data.items())
    return [_pair(name, number, row) for number, row in enumerate(data, 1)]


def _csv_pairs(name: str, text: str) -> Iterable[tuple[Any, Any]]:
    try:
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise InvalidValue(f"{name} is not CSV: {error}") from None
    if not rows:
        raise InvalidValue(f"{name} has no rows; give CSV with a header line, or JSON")
    return [
        _pair(name, number, {str(k).strip().lower(): v for k, v in row.items()}) for number, row in enumerate(rows, 1)
    ]


def _pair(name: str, number: int, row: object) -> tuple[Any, Any]:
    if isinstance(row, dict):
        label = next((row[key] for key in NAMES if isinstance(row.get(key), str)), None)
        value = next((row[key] for key in NUMBERS if row.get(key) is not None), None)
        if label is not None and value is not None:
            return label, value
    raise InvalidValue(f"{name}, row {number} needs one of {', '.join(NAMES)} and one of {', '.join(NUMBERS)}")


def _number(name: str, number: int, value: Any) -> int:
    try:
        requests = -1 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        requests = -1
    if not 0 <= requests <= MOST:
        shown = json.dumps(value)[:40]
        raise InvalidValue(f"{name}, row {number}: {shown} is not a number of requests (a whole number, 0 or more)")
    return requests
