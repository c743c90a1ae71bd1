"""Findings for machines: JSON, annotations of GitHub Actions, and SARIF 2.1.0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from matrixgen import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrixgen.findings import Finding

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
#: GitHub shows so many annotations of one kind for a step, and drops the rest in silence.
MOST_ANNOTATIONS = 10


def as_json(findings: Sequence[Finding], *, ok: bool) -> str:
    """`{"ok", "findings"}`."""
    return json.dumps({"ok": ok, "findings": [finding.to_json() for finding in findings]}, indent=1)


def workflow_commands(findings: Sequence[Finding], folder: str) -> str:
    """Workflow commands, errors first. `folder` is where the files lie in the repository, with a `/` at its end, or empty.

    When there are more than GitHub shows, the last one says how many are left out.
    """
    lines = []
    for severity in ("error", "warning"):
        chosen = [finding for finding in findings if finding.severity == severity]
        shown = chosen if len(chosen) <= MOST_ANNOTATIONS else chosen[: MOST_ANNOTATIONS - 1]
        lines += [_annotation(finding, folder) for finding in shown]
        if rest := len(chosen) - len(shown):
            lines.append(f"::{severity} title=matrixgen::and {rest} more; the log lists them all")
    return "\n".join(lines)


def _annotation(finding: Finding, folder: str) -> str:
    where = f"file={_property(folder + finding.file)},line={max(1, finding.line)}"
    text = f"{finding.pointer or '/'}: {finding.message}\nfix: {finding.fix}"
    return f"::{finding.severity} {where},title={finding.id}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(findings: Sequence[Finding], folder: str) -> str:
    """A SARIF log with one run; its rules are those of the catalogue that were broken."""
    from matrixgen.catalogue import CATALOGUE

    ids = sorted({finding.id for finding in findings})
    rules = [
        {
            "id": id_,
            "shortDescription": {"text": CATALOGUE[id_].title},
            "fullDescription": {"text": CATALOGUE[id_].why},
            "help": {"text": CATALOGUE[id_].fix},
            "defaultConfiguration": {"level": CATALOGUE[id_].severity},
        }
        for id_ in ids
    ]
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "matrixgen", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, folder, ids) for finding in findings],
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _result(finding: Finding, folder: str, ids: Sequence[str]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": folder + finding.file}}
    if finding.line:
        place["region"] = {"startLine": finding.line}
    location: dict[str, Any] = {"physicalLocation": place}
    if finding.pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.pointer}]
    return {
        "ruleId": finding.id,
        "ruleIndex": ids.index(finding.id),
        "level": finding.severity,
        "message": {"text": f"{finding.message}. Fix: {finding.fix}"},
        "locations": [location],
    }
