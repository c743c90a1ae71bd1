"""Canonical JSON: one text for one value, on every machine, and its SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted keys, ASCII only. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_hex(text: str) -> str:
    """SHA-256 of the UTF-8 bytes of `text`, 64 lower-case hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_members(members: Mapping[str, Any]) -> str:
    """The digest_of an object, of which a member may be an iterator: its items are made and hashed one after the other."""
    hashed = hashlib.sha256()
    for number, key in enumerate(sorted(members)):
        value = members[key]
        hashed.update(f"{',' if number else '{'}{canonical_json(key)}:".encode())
        if isinstance(value, Iterator):
            hashed.update(b"[")
            for count, item in enumerate(value):
                hashed.update(f"{',' if count else ''}{canonical_json(item)}".encode())
            hashed.update(b"]")
        else:
            hashed.update(canonical_json(value).encode())
    hashed.update(b"}")
    return f"sha256:{hashed.hexdigest()}"


def digest_of(value: Any) -> str:
    """`sha256:<64 hex>` of the canonical JSON of `value`."""
    return f"sha256:{sha256_hex(canonical_json(value))}"
