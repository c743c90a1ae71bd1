"""Pieces of a file over several connections: their order, what is kept when one breaks, and an end at any moment."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from agent.errors import CutShort, NetworkFailed, RangeRefused, StoreError
from agent.store.patience import Patience
from agent.store.ranges import open_from
from agent.store.sources.source import Remote, Stream
from tests.agent.store.conftest import model_bytes

PIECE = 1000
DATA = model_bytes(6 * PIECE + 10)
Chunks = Callable[[int, int], Iterator[bytes]]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.store.ranges.PIECE", PIECE)


def remote(chunks: Chunks) -> Remote:
    """A file whose bytes come as `chunks` yields them."""

    @contextlib.contextmanager
    def connect(start: int, end: int | None) -> Iterator[Stream]:
        yield Stream(start=start, total=len(DATA), chunks=chunks(start, len(DATA) if end is None else end))

    return Remote(size=len(DATA), ranges=True, open=connect)


def in_steps(start: int, end: int) -> Iterator[bytes]:
    """All bytes of a piece, a hundred at a time."""
    for at in range(start, end, 100):
        yield DATA[at : min(at + 100, end)]


def read_until_it_fails(offer: Remote) -> tuple[bytes, StoreError | None]:
    """What arrived, and what ended it."""
    got = b""
    try:
        with open_from(offer, 0, len(DATA), Patience()) as stream:
            for chunk in stream.chunks:
                got += chunk
    except StoreError as error:
        return got, error
    return got, None


def test_pieces_come_in_order_whichever_is_first() -> None:
    """Later pieces are there before earlier ones, and the file is put together right."""

    def later_is_faster(start: int, end: int) -> Iterator[bytes]:
        time.sleep(max(0.0, 0.2 - start / 30_000))
        yield from in_steps(start, end)

    assert read_until_it_fails(remote(later_is_faster)) == (DATA, None)


def test_what_a_piece_brought_before_it_broke_is_kept() -> None:
    """A piece that breaks off in its middle has given its beginning, so that the next try goes on from there."""

    def breaks(start: int, end: int) -> Iterator[bytes]:
        for chunk in in_steps(start, end):
            if start == 2 * PIECE and chunk[:1] == DATA[start + 700 : start + 701]:
                raise NetworkFailed("broke off")
            yield chunk

    got, error = read_until_it_fails(remote(breaks))
    assert isinstance(error, NetworkFailed)
    assert 2 * PIECE < len(got) <= 2 * PIECE + 700
    assert DATA.startswith(got)


def test_a_slow_piece_shows_its_progress() -> None:
    """Bytes are passed on as they arrive, not when their piece is whole: those who wait for the file see that work goes on."""
    release = threading.Event()

    def stops_in_the_middle(start: int, end: int) -> Iterator[bytes]:
        for number, chunk in enumerate(in_steps(start, end)):
            if start == PIECE and number == 5:
                release.wait(20)
            yield chunk

    with open_from(remote(stops_in_the_middle), 0, len(DATA), Patience()) as stream:
        got = b""
        for chunk in stream.chunks:
            got += chunk
            if len(got) == PIECE + 500:
                release.set()
    assert got == DATA


def test_an_end_does_not_wait_for_servers_that_are_silent() -> None:
    """Ctrl-C while four connections say nothing: it is over at once."""
    silent, started = threading.Event(), threading.Event()

    def falls_silent(start: int, end: int) -> Iterator[bytes]:
        if start:
            started.set()
            silent.wait(20)
        yield from in_steps(start, end)

    main = threading.get_ident()

    def interrupt() -> None:
        started.wait(20)
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    since = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read_until_it_fails(remote(falls_silent))
    assert time.monotonic() - since < 5
    silent.set()


@pytest.mark.parametrize(
    ("surplus", "error"), [(b"more", RangeRefused), (None, CutShort)], ids=["too much", "too little"]
)
def test_a_piece_of_another_length_is_refused(surplus: bytes | None, error: type[StoreError]) -> None:
    """Neither is a byte too many put into the file, nor one too few passed for the end of a piece."""

    def odd(start: int, end: int) -> Iterator[bytes]:
        if start != 3 * PIECE:
            yield from in_steps(start, end)
        elif surplus is None:
            yield DATA[start : end - 1]
        else:
            yield DATA[start:end] + surplus

    got, found = read_until_it_fails(remote(odd))
    assert isinstance(found, error)
    assert DATA.startswith(got)
