"""A report is held against the schema of its kind before anybody reads a field of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ReportInvalid, ReportMissing
from agent.prebuilt.report import read_report
from tests.agent.prebuilt.reports import HANDOFF, PREFLIGHT, STEP, collected

KINDS: dict[str, dict[str, Any]] = {
    "single-step": STEP,
    "split-scan": collected("split-scan", [STEP]),
    "dtype-matrix": collected("dtype-matrix", [STEP]),
    "state-handoff": HANDOFF,
    "preflight": PREFLIGHT,
}


def write(folder: Path, text: str) -> Path:
    """A report file."""
    path = folder / "report.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_of_its_kind_is_read(kind: str, tmp_path: Path) -> None:
    """The example of the facts passes, and a field that is not known is let through."""
    data = {**KINDS[kind], "a_field_of_next_year": 1}
    assert read_report(write(tmp_path, json.dumps(data)), kind) == data


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind, report in KINDS.items() for field in report if field not in {
        "native_mtp_draft_required", "restored_output_matches", "suffix_prefill_matches", "model_id", "activation_width",
        "schema_version",
    }]
)  # fmt: skip
def test_a_report_without_a_field_is_refused(kind: str, field: str, tmp_path: Path) -> None:
    """Each field that a check reads must be there."""
    data = copy.deepcopy(KINDS[kind])
    del data[field]
    with pytest.raises(ReportInvalid, match=field):
        read_report(write(tmp_path, json.dumps(data)), kind)


@pytest.mark.parametrize(
    "change",
    [
        {"matches": "true"},
        {"mode": "chain"},
        {"status": "passed"},
        {"baseline": {"token_id": 1.5, "predicted_token": 2}},
        {"split": None},
        {"stage_models": {}},
    ],
)
def test_a_field_of_another_type_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    """A word where a number should be is no report."""
    with pytest.raises(ReportInvalid, match="not a single-step report"):
        read_report(write(tmp_path, json.dumps({**STEP, **change})), "single-step")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", ReportMissing),
        (" \n", ReportMissing),
        (json.dumps(STEP)[:-20], ReportInvalid),
        ("warming up\n" + json.dumps(STEP), ReportInvalid),
        ("[" * 100_000, ReportInvalid),
        (json.dumps(STEP).replace("14", "NaN"), ReportInvalid),
        ("[]", ReportInvalid),
    ],
)
def test_what_is_no_report(text: str, cause: type[Exception], tmp_path: Path) -> None:
    """Nothing, half a report, a log before it, a bomb, numbers that are none."""
    with pytest.raises(cause):
        read_report(write(tmp_path, text), "single-step")


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there, or is a folder, is a missing report."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ReportMissing):
            read_report(path, "chain")
