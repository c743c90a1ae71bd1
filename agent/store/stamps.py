"""What is known about files that were hashed on this machine, so that none is hashed twice and none is trusted after a change."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from agent.errors import FileUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK = 4 * 2**20
_FRESH_NS = 2 * 10**9


class Stamps:
    """Digests of files, each valid while size, mtime, ctime, inode and device of its file stay as they were.

    Args:
        folder: where stamps are kept; None remembers them for the life of this object only.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[Path, dict[str, Any]] = {}

    def sha256_of(self, path: Path, advance: Callable[[int], None] | None = None) -> str:
        """64 hex digits: from the stamp where it holds, else the file is hashed now.

        Args:
            path: a file; links are followed.
            advance: called with the number of bytes after each block that is hashed.

        Raises:
            FileUnreadable: it cannot be read, or changed while it was.
        """
        try:
            path = path.resolve(strict=True)
            known = self.known(path)
            if known is not None:
                return known
            with path.open("rb", buffering=0) as file:
                before = os.fstat(file.fileno())
                digest = _hash(file.fileno(), advance)
                after = os.fstat(file.fileno())
        except OSError as error:
            raise FileUnreadable(
                f"{path} cannot be read ({error.strerror}): check the path and its permissions"
            ) from error
        if _facts(before) != _facts(after):
            raise FileUnreadable(f"{path} changed while it was hashed: end whatever writes to it, and start again")
        if time.time_ns() - after.st_mtime_ns > _FRESH_NS:  # a change within the same tick of the clock would not show
            self.remember(path, digest)
        return digest

    def known(self, path: Path) -> str | None:
        """The digest of `path` where a stamp of it holds, else None."""
        try:
            path = path.resolve(strict=True)
            facts = _facts(path.stat())
        except OSError:
            return None
        stamp = self._known.get(path) or self._read(path)
        return stamp["sha256"] if stamp and stamp["facts"] == facts and stamp["path"] == str(path) else None

    def remember(self, path: Path, sha256: str) -> None:
        """Stamp a file whose digest the caller has just seen."""
        path = path.resolve()
        stamp = {"path": str(path), "facts": _facts(path.stat()), "sha256": sha256, "hashed_at": int(time.time())}
        self._known[path] = stamp
        if self._folder is None:
            return
        target = self._file(path)
        # One name for all: an unfinished one is written over, never piled up. Two writers at once may leave a stamp that is
        # no JSON, and then the file is hashed again.
        temporary = target.with_suffix(".new")
        with contextlib.suppress(OSError):  # a stamp only saves time
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(stamp), encoding="utf-8")
            temporary.replace(target)

    def forget(self, path: Path) -> None:
        """Drop what is known of `path`."""
        path = path.resolve()
        self._known.pop(path, None)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._file(path).unlink(missing_ok=True)

    def _read(self, path: Path) -> dict[str, Any] | None:
        if self._folder is None:
            return None
        try:
            stamp = json.loads(self._file(path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return stamp if isinstance(stamp, dict) and {"path", "facts", "sha256"} <= stamp.keys() else None

    def _file(self, path: Path) -> Path:
        assert self._folder is not None
        return self._folder / (hashlib.sha256(os.fsencode(path)).hexdigest() + ".json")


def _facts(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def _hash(descriptor: int, advance: Callable[[int], None] | None) -> str:
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    while count := os.readv(descriptor, [block]):
        digest.update(block[:count])
        if advance is not None:
            advance(count)
    return digest.hexdigest()
