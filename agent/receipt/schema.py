"""The JSON Schema of a receipt, and the check against it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from agent.errors import ReceiptInvalid

SCHEMA_FILE = Path(__file__).with_name("receipt.schema.json")


@functools.cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def check_receipt(data: object, what: str) -> None:
    """Raise ReceiptInvalid, with every violation, unless `data` is a receipt."""
    errors = sorted(_validator().iter_errors(data), key=lambda error: error.json_path)
    if errors:
        lines = [f"{error.json_path}: {error.message[:200]}" for error in errors[:20]]
        raise ReceiptInvalid(f"{what} does not match the schema of a receipt:\n  " + "\n  ".join(lines))
