"""Canonical JSON: one text for one value, on every machine, and its SHA-256."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted keys, ASCII only. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_hex(text: str) -> str:
    """SHA-256 of the UTF-8 bytes of `text`, 64 lower-case hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(value: Any) -> str:
    """`sha256:<64 hex>` of the canonical JSON of `value`."""
    return f"sha256:{sha256_hex(canonical_json(value))}"
