"""Where skippy-agent keeps what it makes on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`SKIPPY_CACHE`, else `skippy-ci` in the user's cache folder."""
    chosen = os.environ.get("SKIPPY_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "skippy-ci"


def twin_folder() -> Path:
    """Where twins are kept."""
    return cache_folder() / "twins"
