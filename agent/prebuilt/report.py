"""The reports that binaries write: read, and held against the JSON Schema of their kind, before anybody believes them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.errors import ReportInvalid, ReportMissing

SCHEMA_FILE = Path(__file__).with_name("reports.schema.json")
_MOST_BYTES = 64 * 2**20
_MOST_LINES = 5

Report = Mapping[str, Any]


def read_report(path: Path, kind: str) -> Report:
    """Read the report of a `kind`: the command's name.

    Raises:
        ReportMissing: there is none.
        ReportInvalid: it is not whole, no JSON, or not of the form of its kind.
    """
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if 0 < size <= _MOST_BYTES else ""
    except (OSError, ValueError) as error:
        raise ReportMissing(f"it wrote no report ({error})") from error
    if not text.strip():
        raise ReportMissing(f"its report has {size} bytes and says nothing that can be read")
    try:
        data = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ReportInvalid(f"its report is no JSON ({error})") from error
    errors = sorted(_validator(kind).iter_errors(data), key=lambda error: error.json_path)
    if errors:
        lines = "; ".join(f"{error.json_path}: {error.message[:160]}" for error in errors[:_MOST_LINES])
        raise ReportInvalid(f"its report is not a {kind} report as the adapter knows it: {lines}")
    report: Report = data
    return report


def _refuse(word: str) -> float:
    raise ValueError(f"it holds {word}")


@functools.cache
def _validator(kind: str) -> Any:
    from jsonschema import Draft202012Validator

    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return Draft202012Validator({**schema, "$ref": f"#/$defs/{kind}"})
