"""Compares our header with what llama.cpp's reader saw."""

from __future__ import annotations

import math

from agent.header.model import Header, SkippedArray, SkippedString
from tests.agent.header.ggml_reader import Seen

STRICTER = frozenset(
    {
        "bad_alignment",  # above 1 MiB
        "bad_block_count",
        "bad_name",  # empty or with a zero byte
        "bad_shape",  # a dimension of 0
        "concatenated",
        "limit_exceeded",
        "missing_architecture",
        "truncated",  # tensor data is not in the file: llama.cpp checks that later, when it loads
    }
)
"""Verdicts on files that llama.cpp's reader accepts: what we refuse on purpose."""


def differences(header: Header, seen: Seen) -> list[str]:
    """Return all in which the two readers differ; empty where they agree."""
    pairs: list[tuple[str, object, object]] = [
        ("version", header.version, seen.version),
        ("alignment", header.alignment, seen.alignment),
        ("data offset", header.data_offset, seen.data_offset),
        ("keys", list(header.metadata), list(seen.values)),
        ("tensors", [(t.name, t.type, t.offset, t.n_bytes) for t in header.tensors], list(seen.tensors)),
    ]
    lines = [f"{what}: {ours!r} != {theirs!r}" for what, ours, theirs in pairs if ours != theirs]
    return lines + [
        f"{key}: {header.metadata[key]!r} != {value!r}"
        for key, value in seen.values.items()
        if key in header.metadata and not _same(header.metadata[key], value)
    ]


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, SkippedArray):
        return isinstance(theirs, tuple) and (ours.type, ours.length) == theirs[:2]
    if isinstance(ours, SkippedString):
        return isinstance(theirs, str) and len(theirs.encode("utf-8", "surrogateescape")) == ours.length
    if isinstance(ours, tuple):
        return isinstance(theirs, tuple) and all(map(_same, ours, theirs[2])) and len(ours) == theirs[1]
    if isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours):
        return math.isnan(theirs)
    if isinstance(ours, str):
        # llama.cpp hands strings out as C strings
        return ours.partition("\0")[0] == theirs
    return ours == theirs
