"""Several pieces of a file at once, passed on in their order as they arrive: what is on the disk is always a beginning."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING

from agent.errors import CutShort, RangeRefused
from agent.store.sources.source import Stream
from agent.store.watchdog import watched

if TYPE_CHECKING:
    from agent.store.patience import Patience
    from agent.store.sources.source import Remote

PIECE = 16 * 2**20
CONNECTIONS = 4
"""At most PIECE * CONNECTIONS bytes wait in memory for an earlier piece."""


@contextlib.contextmanager
def open_from(offer: Remote, start: int, size: int, patience: Patience) -> Iterator[Stream]:
    """Open `offer` from byte `start` to its end: over several connections where it is worth them, else over one.

    Raises:
        StoreError: as `Remote.open`, or where ranges are answered at one time and ignored at another.
    """
    parallel = offer.ranges and size - start >= 2 * PIECE
    with offer.open(start, start + PIECE if parallel else None) as first:
        chunks = watched(first.chunks, patience)
        if parallel:
            chunks = _and_the_rest(offer, first.start == start, chunks, start, size, patience)
        yield Stream(start=first.start, total=first.total, chunks=chunks)


def _and_the_rest(
    offer: Remote, as_asked: bool, first: Iterator[bytes], start: int, size: int, patience: Patience
) -> Iterator[bytes]:
    got = 0
    for chunk in first:
        got += len(chunk)
        yield chunk
    if not as_asked or got != PIECE:  # it ignores ranges and sent all that it has
        return
    bounds = deque((at, min(at + PIECE, size)) for at in range(start + PIECE, size, PIECE))
    running: deque[_Piece] = deque()
    try:
        while bounds or running:
            while bounds and len(running) < CONNECTIONS:
                running.append(_Piece(offer, *bounds.popleft(), patience))
            yield from running[0].chunks()
            running.popleft()
    finally:
        for piece in running:
            piece.stop()


class _Piece:
    """Bytes `start` to `end` on their way, over a connection and in a thread of their own.

    The thread is a daemon: whoever interrupts a download does not wait for a server that is slow or silent.
    """

    def __init__(self, offer: Remote, start: int, end: int, patience: Patience) -> None:
        self._offer, self._start, self._end, self._patience = offer, start, end, patience
        self._arrived: SimpleQueue[bytes | BaseException | None] = SimpleQueue()
        self._stopped = threading.Event()
        threading.Thread(target=self._fetch, daemon=True).start()

    def chunks(self) -> Iterator[bytes]:
        """Yield what arrives until the piece is whole; raises what ended it early, after all that came before."""
        while (item := self._arrived.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def stop(self) -> None:
        """Let the thread end with its next chunk."""
        self._stopped.set()

    def _fetch(self) -> None:
        try:
            self._transfer()
        except BaseException as error:  # noqa: BLE001 - it is raised where the chunks are read
            self._arrived.put(error)
        else:
            self._arrived.put(None)

    def _transfer(self) -> None:
        wanted, got = self._end - self._start, 0
        with self._offer.open(self._start, self._end) as stream:
            if stream.start != self._start:
                raise RangeRefused("ranges are answered at one time and ignored at another")
            for chunk in watched(stream.chunks, self._patience):
                got += len(chunk)
                if got > wanted:
                    raise RangeRefused(f"more than the {wanted} bytes came that were asked for")
                if self._stopped.is_set():
                    return
                self._arrived.put(chunk)
        if got != wanted:
            raise CutShort(f"a piece of {wanted} bytes ended after {got}")
