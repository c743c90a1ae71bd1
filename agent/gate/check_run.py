"""The check run of a verdict: conclusion, summary, and an annotation for each leg that is not green."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent.gate.reason import State
from agent.gate.text import plain
from agent.gate.verdict import LegVerdict, Verdict

# limits of the REST API, "Create a check run"
MAX_ANNOTATIONS = 50
MAX_SUMMARY = 65_535
_CONCLUSIONS = {State.GREEN: "success", State.RED: "failure", State.INFRA: "failure"}


def check_run(verdict: Verdict, summary: str, families: str, path: str) -> tuple[str, dict[str, Any]]:
    """(conclusion, output) of the check run.

    `families` is the text of families.json at the tested commit and `path` its place there, so that an annotation
    stands at the row of its family. `infra` is a failure too: a check that is not red would let the pin through.
    """
    bad = [leg for leg in verdict.legs if leg.state is not State.GREEN]
    lines = _lines(families)
    output = {
        "title": f"{verdict.state}: {verdict.count(State.GREEN)} of {len(verdict.legs)} legs green",
        "summary": _cut(summary),
        "annotations": [_annotation(leg, lines, path) for leg in bad[:MAX_ANNOTATIONS]],
    }
    return _CONCLUSIONS[verdict.state], output


def _annotation(leg: LegVerdict, lines: Mapping[str, int], path: str) -> dict[str, Any]:
    line = lines.get(leg.leg.partition("@")[0], 1)
    return {
        "path": path,
        "start_line": line,
        "end_line": line,
        "annotation_level": "failure" if leg.state is State.RED else "warning",
        "title": plain(leg.leg, 200),
        "message": "\n".join(f"{reason.cause}: {reason.message}" for reason in leg.reasons[:20]),
    }


def _lines(families: str) -> dict[str, int]:
    """Family -> line of its row; families.json keeps one row on one line."""
    found = {}
    for number, line in enumerate(families.splitlines(), 1):
        try:
            row = json.loads(line.rstrip(","))
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("family"), str):
            found[row["family"]] = number
    return found


def _cut(summary: str) -> str:
    end = "\n\nThe rest is in verdict.json.\n"
    return (
        summary
        if len(summary.encode()) <= MAX_SUMMARY
        else summary.encode()[: MAX_SUMMARY - 64].decode(errors="ignore") + end
    )
