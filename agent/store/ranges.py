"""Several pieces of a file at once, given back in their order, so that what is on the disk is always a beginning."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
    with ThreadPoolExecutor(max_workers=CONNECTIONS) as pool:
        running: deque[Future[bytes]] = deque()
        try:
            while bounds or running:
                while bounds and len(running) < CONNECTIONS:
                    running.append(pool.submit(_piece, offer, *bounds.popleft(), patience))
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def _piece(offer: Remote, start: int, end: int, patience: Patience) -> bytes:
    with offer.open(start, end) as stream:
        if stream.start != start:
            raise RangeRefused("ranges are answered at one time and ignored at another")
        data = b"".join(watched(stream.chunks, patience))
    if len(data) != end - start:
        raise CutShort(f"a piece of {end - start} bytes ended after {len(data)}")
    return data
