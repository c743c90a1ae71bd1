"""Locks of the operating system on files: a reader's lease is a shared one, a writer holds an exclusive one.

The system drops them when a process dies, however it dies, so none is ever stale and none is ever broken by age. The files are
never unlinked: a process that waits on an unlinked file would hold a lock that nobody else sees.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

from agent.errors import StoreBusy, StoreDenied
from agent.store.space import disk_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_TAKEN = {errno.EAGAIN, errno.EACCES}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_POLL_SECONDS = (0.02, 0.5)  # first and longest


class Held:
    """A lock that is held. `beat` shows those who wait that work goes on, and marks the time of the last use."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last = 0.0

    def beat(self) -> None:
        """Touch the lock's file, once a second at most."""
        now = time.monotonic()
        if now - self._last >= 1:
            self._last = now
            with contextlib.suppress(OSError):  # in a store that this user may only read
                os.utime(self._descriptor)


def try_exclusive(path: Path) -> contextlib.AbstractContextManager[Held | None]:
    """Hold `path` exclusively for the block, or give None at once where anybody holds it."""
    return _hold(path, fcntl.LOCK_EX, 0.0, None)


@contextlib.contextmanager
def exclusive(path: Path, *, patience: float, on_wait: Callable[[], None] | None = None) -> Iterator[Held]:
    """Hold `path` alone for the block.

    Args:
        path: the lock's file; made where it is missing.
        patience: seconds without a sign of life of the holder after which waiting ends.
        on_wait: called once if another holder must be waited for.

    Raises:
        StoreBusy: the holder makes no progress.
        StoreDenied: the file cannot be opened, or its file system has no locks.
    """
    with _hold(path, fcntl.LOCK_EX, patience, on_wait) as held:
        yield _taken(path, held, patience)


@contextlib.contextmanager
def shared(path: Path, *, patience: float, on_wait: Callable[[], None] | None = None) -> Iterator[Held]:
    """Hold `path` together with other readers for the block; see `exclusive`."""
    with _hold(path, fcntl.LOCK_SH, patience, on_wait) as held:
        yield _taken(path, held, patience)


def _taken(path: Path, held: Held | None, patience: float) -> Held:
    if held is None:
        raise StoreBusy(
            f"another process holds {path} and showed no progress for {patience:.0f} s: find it with `fuser {path}`, end it, "
            "and start again"
        )
    return held


@contextlib.contextmanager
def _hold(path: Path, kind: int, patience: float, on_wait: Callable[[], None] | None) -> Iterator[Held | None]:
    with disk_errors(path):
        descriptor = _open(path, kind)
    try:
        yield Held(descriptor) if _acquire(path, descriptor, kind, patience, on_wait) else None
    finally:
        os.close(descriptor)


def _open(path: Path, kind: int) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        if kind == fcntl.LOCK_SH:  # a store that this user may only read
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        raise


def _acquire(path: Path, descriptor: int, kind: int, patience: float, on_wait: Callable[[], None] | None) -> bool:
    seen, since = 0, time.monotonic()
    poll, longest = _POLL_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise StoreDenied(
                    f"the file system of {path} has no locks ({error.strerror}): put the store on a local disk with --store"
                ) from None
            if error.errno not in _TAKEN:
                raise
        else:
            return True
        # only changes of the time are looked at, never its distance from now: clocks of hosts differ
        beat = os.fstat(descriptor).st_mtime_ns
        if beat != seen:
            seen, since = beat, time.monotonic()
        if time.monotonic() - since >= patience:
            return False
        if on_wait is not None:
            on_wait()
            on_wait = None
        time.sleep(poll)
        poll = min(poll * 1.5, longest)
