"""Several pieces of a file at once, given back in their order, so that what is on the disk is always a beginning."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from agent.errors import CutShort, RangeRefused
from agent.store.sources.source import Stream

if TYPE_CHECKING:
    from agent.store.sources.source import Remote

PIECE = 16 * 2**20
CONNECTIONS = 4
"""At most PIECE * CONNECTIONS bytes wait in memory for an earlier piece."""


@contextlib.contextmanager
def in_ranges(offer: Remote, start: int, size: int) -> Iterator[Stream]:
    """Open `offer` from byte `start`: over several connections where it is worth them, else over one.

    Raises:
        StoreError: as `Remote.open`.
    """
    if not offer.ranges or size - start < 2 * PIECE:
        with offer.open(start, None) as stream:
            yield stream
        return
    with offer.open(start, start + PIECE) as first:
        if first.start != start or first.total is None or (start == 0 and first.total != size) or not start:
            # also the first piece tells whether ranges are understood: a server that ignores them sends all of it
            probe = first
        yield Stream(start=first.start, total=first.total, chunks=_chunks(offer, first, start, size))


def _chunks(offer: Remote, first: Stream, start: int, size: int) -> Iterator[bytes]:
    got = 0
    for chunk in first.chunks:
        got += len(chunk)
        yield chunk
    if first.start != start or got != PIECE:
        return
    bounds = deque((at, min(at + PIECE, size)) for at in range(start + PIECE, size, PIECE))
    with ThreadPoolExecutor(max_workers=CONNECTIONS) as pool:
        running: deque[Future[bytes]] = deque()
        try:
            while bounds or running:
                while bounds and len(running) < CONNECTIONS:
                    running.append(pool.submit(_piece, offer, *bounds.popleft()))
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def _piece(offer: Remote, start: int, end: int) -> bytes:
    with offer.open(start, end) as stream:
        if stream.start != start:
            raise RangeRefused("ranges are answered at one time and ignored at another")
        data = b"".join(stream.chunks)
    if len(data) != end - start:
        raise CutShort(f"a piece of {end - start} bytes ended after {len(data)}")
    return data
