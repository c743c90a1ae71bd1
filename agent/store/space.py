"""Room on the disk: asked for before the first byte, and told apart from a network failure when it ends."""

from __future__ import annotations

import contextlib
import errno
import shutil
from typing import TYPE_CHECKING

from agent.errors import NoSpace, StoreDenied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GIB = 2**30
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": GIB, "t": 2**40}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


def shown_size(size: float) -> str:
    """`1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def parse_size(text: str) -> int:
    """Bytes of `20GiB`, `20G`, `500m` or `1024`. Raises ValueError."""
    number, unit = text.strip().lower(), ""
    for ending in ("ib", "b"):
        number = number.removesuffix(ending)
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], number[-1]
    size = float(number) * _UNITS[unit]
    if not 0 <= size < 2**60:
        raise ValueError(f"{text} is no size")
    return int(size)


def require_space(folder: Path, needed: int, floor: int) -> None:
    """Make sure that `needed` bytes fit and `floor` bytes stay free.

    Raises:
        NoSpace: they do not; says by how much.
    """
    free = shutil.disk_usage(folder).free
    short = needed + floor - free
    if needed and short > 0:
        raise NoSpace(
            f"{shown_size(needed)} are to be fetched and {shown_size(floor)} to be kept free, but {folder} has "
            f"{shown_size(free)}: {shown_size(short)} are missing. Make room (`skippy-agent cache gc --free "
            f"{shown_size(needed + floor).replace(' ', '')}` removes what was not used for longest), or put the store on "
            "another disk with --store or SKIPPY_STORE"
        )


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Name what the system refuses while `path` is read or written.

    Raises:
        NoSpace: disk, quota or file size limit is reached.
        StoreDenied: everything else that the system says no to.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpace(
                f"the disk of {path} is full ({error.strerror}): make room (`skippy-agent cache gc`), or put the store on "
                "another disk with --store or SKIPPY_STORE"
            ) from None
        if error.errno in _DENIED:
            raise StoreDenied(
                f"{error.filename or path}: {error.strerror}. Give it to the user of this agent (`chown -R`), or name another "
                "store with --store or SKIPPY_STORE"
            ) from None
        if error.errno is None:
            raise
        raise StoreDenied(
            f"{error.filename or path} cannot be used: {error.strerror}. Check the disk, or name another store with --store"
        ) from None
