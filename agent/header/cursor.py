"""A bounded walk over a source: nothing is read, allocated or skipped beyond the bytes that are there."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn

from agent.errors import HeaderInvalid
from agent.header.verdicts import NEXT_STEP, Verdict

if TYPE_CHECKING:
    from agent.header.source import Source

WINDOW = 1 << 20
_LENGTH = struct.Struct("<Q")


class Cursor:
    """Reads little-endian items one after the other through a window of at most `window` bytes.

    Long strings and arrays are jumped over, so a remote source is asked only for what is looked at.

    Raises:
        HeaderInvalid: `truncated`, from every method, where the source ends too early.
    """

    def __init__(self, source: Source, *, window: int = WINDOW) -> None:
        self.size = source.size
        self._source = source
        self._window = window
        self._buffer = b""
        self._start = 0
        self._pos = 0

    @property
    def offset(self) -> int:
        """Position in the source, in bytes."""
        return self._start + self._pos

    @property
    def left(self) -> int:
        """Bytes between the position and the end of the source."""
        return self.size - self.offset

    def fail(self, verdict: Verdict, detail: str) -> NoReturn:
        """Raise `HeaderInvalid` about this source."""
        raise HeaderInvalid(self._source.name, verdict, detail, NEXT_STEP[verdict])

    def require(self, n: int, what: str) -> None:
        """Check that `n` more bytes exist."""
        if n > self.left:
            self.fail(
                Verdict.TRUNCATED,
                f"{what} at byte {self.offset} needs {n} bytes, but only {max(self.left, 0)} of {self.size} are left",
            )

    def read(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        """Return the items of `layout`."""
        n = layout.size
        if self._pos + n > len(self._buffer):
            self._fill(n, what)
        items = layout.unpack_from(self._buffer, self._pos)
        self._pos += n
        return items

    def take(self, n: int, what: str) -> bytes:
        """Return the next `n` bytes."""
        if self._pos + n > len(self._buffer):
            self._fill(n, what)
        data = self._buffer[self._pos : self._pos + n]
        self._pos += n
        return data

    def skip(self, n: int, what: str) -> None:
        """Jump over `n` bytes without reading them."""
        self.require(n, what)
        self._pos += n

    def skip_strings(self, count: int, what: str) -> None:
        """Jump over `count` length-prefixed strings: a loop over their lengths, the strings themselves stay unread."""
        unpack = _LENGTH.unpack_from
        todo = count
        while todo:
            self._fill(_LENGTH.size, what)
            buffer, pos, done = self._buffer, self._pos, 0
            try:
                # the loop ends by its own error where the next length is outside of the window
                for done in range(todo):  # noqa: B007
                    pos += unpack(buffer, pos)[0] + 8
                todo = 0
            except (struct.error, OverflowError):
                todo -= done
            # a huge length moves the position beyond the end, where `_fill` or `require` stops
            self._pos = pos
        self.require(0, what)

    def _fill(self, n: int, what: str) -> None:
        self.require(n, what)
        if self._pos + n <= len(self._buffer):
            return
        self._start, self._pos = self.offset, 0
        want = min(max(n, self._window), self.left)
        self._buffer = self._source.read_at(self._start, want)
        if len(self._buffer) < n:
            self.fail(Verdict.TRUNCATED, f"{what} at byte {self._start} could not be read: the file shrank meanwhile")
