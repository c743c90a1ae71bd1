"""Edit families.json so that one family stays one line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from matrixgen.errors import InvalidValue, ManifestInvalid
from matrixgen.family import Family
from matrixgen.files import write_atomically
from matrixgen.findings import Finding
from matrixgen.source import parse, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TIER = re.compile(r'("tier": )(null|-?\d+)(?=, "arch": )')


def row_text(row: Mapping[str, Any]) -> str:
    """The one line of a row, without its comma."""
    return json.dumps(row, ensure_ascii=False, separators=(", ", ": "), allow_nan=False)


def families_text(rows: list[Mapping[str, Any]]) -> str:
    """families.json in canonical form: fixed key order, sorted by name, one row a line."""
    ordered = sorted((Family.from_row(row).to_row() for row in rows), key=lambda row: str(row["family"]))
    return '{\n"schema_version": 1,\n"families": [\n' + ",\n".join(map(row_text, ordered)) + "\n]\n}\n"


def formatted(root: Path) -> tuple[str, str]:
    """(text now, canonical text) of families.json. Raises ManifestInvalid when it does not match its schema."""
    from matrixgen import schema

    text = read_text(root / "families.json")
    document = parse("families.json", text)
    findings = list(document.findings)
    if not findings:
        findings = schema.check(document, schema.load_schema(schema.packaged_root(), "families"))
    if findings:
        raise ManifestInvalid(findings, root)
    return text, families_text(document.data["families"])


def form_finding(root: Path) -> list[Finding]:
    """A warning when families.json is not in canonical form."""
    now, canonical = formatted(root)
    if now == canonical:
        return []
    pairs = zip(now.split("\n"), canonical.split("\n"), strict=False)
    line = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), 1)
    return [
        Finding(
            id="MG029",
            severity="warning",
            file="families.json",
            pointer="/families",
            line=line,
            message="not in canonical form: one family a line, fixed key order, sorted by name",
            fix="run `matrixgen fmt`",
        )
    ]


def move(root: Path, name: str, tier: int | None) -> tuple[int | None, str]:
    """Set the tier of `name`; (old tier, new line). Exactly one line of one file changes, none if it is there already.

    The result is checked like any other manifest before a byte is written.
    Raises UnknownFamily, ManifestInvalid, InvalidValue when the row is not one line, CannotWrite.
    """
    from matrixgen.manifest import check_manifest, load_manifest

    path = root / "families.json"
    old_tier = load_manifest(root).family(name).tier
    text = read_text(path)
    line = _line_of(text, name)
    moved = _TIER.sub(lambda match: match[1] + json.dumps(tier), line)
    changed = text.replace(line, moved, 1)
    findings, after = check_manifest(root, replaced={"families": changed})
    if after is None:
        raise ManifestInvalid(findings, root)
    if changed != text:
        write_atomically(path, changed)
    return old_tier, moved.strip().rstrip(",")


def add(root: Path, row: Mapping[str, Any]) -> str:
    """Add a row; its line. The file is written in canonical form, so exactly one line more is in it if it was so before.

    The result is checked like any other manifest before a byte is written. Raises ManifestInvalid, InvalidValue, CannotWrite.
    """
    from matrixgen.manifest import check_manifest

    path = root / "families.json"
    now, canonical = formatted(root)
    if now != canonical:
        raise InvalidValue(f"{path} is not in canonical form; run `matrixgen fmt` first, so that one line changes")
    rows = json.loads(now)["families"]
    changed = '{"schema_version": 1, "families": [' + ",\n".join(map(row_text, [*rows, row])) + "]}"
    findings, after = check_manifest(root, replaced={"families": changed})
    if after is None:
        raise ManifestInvalid(findings, root)
    write_atomically(path, families_text([family.to_row() for family in after.families]))
    return row_text(row)


def _line_of(text: str, name: str) -> str:
    marker = f'"family": {json.dumps(name)}'
    for line in text.split("\n"):
        if marker in line and len(_TIER.findall(line)) == 1:
            return line
    raise InvalidValue(f"the row of {name} is not one line of families.json; run `matrixgen fmt` first")
