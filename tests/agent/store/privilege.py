"""Tests of what may not be read run as root, too: its privilege is laid down for a block."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_VERSION = 0x20080522
_READ_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def closed(folder: Path) -> Iterator[Path]:
    """A folder that this process cannot look into for the length of a block."""
    folder.mkdir(parents=True, exist_ok=True)
    mode = folder.stat().st_mode & 0o777
    folder.chmod(0)
    try:
        with _unprivileged():
            yield folder
    finally:
        folder.chmod(mode)


@contextlib.contextmanager
def _unprivileged() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, words = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, words):
        raise OSError(ctypes.get_errno(), "capget")
    before = words[0]
    words[0] = before & ~_READ_ALL
    if libc.capset(header, words):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        words[0] = before
        libc.capset(header, words)
