"""Where a header's bytes come from. The parser knows only `Source`, so HTTP ranges can feed it as a file does."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Protocol, Self

from agent.errors import HeaderUnreadable
from agent.header.text import printable
from agent.header.verdicts import NEXT_STEP, Verdict

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class Source(Protocol):
    """Random access to bytes of known length."""

    @property
    def name(self) -> str:
        """For messages, already printable."""
        ...

    @property
    def size(self) -> int:
        """Total length in bytes."""
        ...

    def read_at(self, offset: int, n: int) -> bytes:
        """Return the `n` bytes at `offset`; fewer only where the source ends."""
        ...


class BytesSource:
    """A header that is in memory already."""

    def __init__(self, data: bytes, name: str = "<memory>") -> None:
        self.name = name
        self.size = len(data)
        self._data = data

    def read_at(self, offset: int, n: int) -> bytes:
        """Return the `n` bytes at `offset`."""
        return self._data[offset : offset + n]


class FileSource:
    """A regular file. Never blocks on a pipe and never reads a device.

    Raises:
        HeaderUnreadable: not there, not a regular file, or the system refuses.
    """

    def __init__(self, path: Path) -> None:
        self.name = printable(str(path))
        try:
            # without O_NONBLOCK, opening a named pipe waits for a writer
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            raise self._error(Verdict.MISSING_FILE, "there is no such file") from None
        except (OSError, ValueError) as error:
            raise self._error(Verdict.UNREADABLE, _reason(error)) from None
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise self._error(Verdict.NOT_A_FILE, f"it is {kind}")
        self.size = status.st_size

    def read_at(self, offset: int, n: int) -> bytes:
        """Return the `n` bytes at `offset`."""
        try:
            os.lseek(self._fd, offset, os.SEEK_SET)
            return os.read(self._fd, n)
        except OSError as error:
            raise self._error(Verdict.UNREADABLE, _reason(error)) from None

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _error(self, verdict: Verdict, detail: str) -> HeaderUnreadable:
        return HeaderUnreadable(self.name, verdict, detail, NEXT_STEP[verdict])


def _reason(error: OSError | ValueError) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"it cannot be read: {text}"
