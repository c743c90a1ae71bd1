"""Hostile headers: whatever the bytes, the reader answers, quickly, in little memory, with its own errors or a header."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import HeaderError
from agent.header.formats import HEAD
from agent.header.layers import disagreements, layer_kinds_from_metadata, layer_kinds_from_tensors, period
from agent.header.limits import MAX_KEYS, MAX_TENSORS
from agent.header.parse import parse
from agent.header.role import require_causal, require_projector, role_of
from agent.header.source import BytesSource
from agent.header.state_size import kv_page_bytes, recurrent_bytes
from tests.agent.header.kit import UNKNOWN_TYPE, architecture, gguf, key, mutate, read, samples, tensor, u32

_HANG_S = 1.0
_MEMORY = 64 << 20


class _HangError(BaseException):
    """Not an Exception, so that no handler on the way takes it for one of the reader's."""


@contextlib.contextmanager
def _no_hang() -> Iterator[None]:
    """Break off what burns more than a second of CPU time; waiting for other processes does not count."""

    def stop(signum: int, frame: object) -> None:
        raise _HangError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _use(data: bytes) -> str:
    """Do all that the agent does with a header; return the outcome."""
    try:
        header = read(data)
    except HeaderError as error:
        return error.verdict if str(error).isprintable() else "unprintable"
    for step in (
        require_causal,
        require_projector,
        role_of,
        layer_kinds_from_tensors,
        layer_kinds_from_metadata,
        disagreements,
        recurrent_bytes,
        lambda header: kv_page_bytes(header, 16),
        lambda header: period(layer_kinds_from_metadata(header) or ()),
    ):
        with contextlib.suppress(HeaderError):
            step(header)
    return "accepted"


@pytest.mark.parametrize(("seed", "count"), [(11, 5_000), pytest.param(12, 200_000, marks=pytest.mark.slow)])
def test_mutated_headers_neither_hang_nor_fill_memory_nor_leak_errors(seed: int, count: int) -> None:
    """Every mutant gives a header or one of our errors: no hang over 1 s, no growth over 64 MB.

    The slow run is 200,000 mutants; its figures are in docs/header.md.
    """
    rng, seeds, outcomes = random.Random(seed), samples(), Counter[str]()
    before = _peak()
    for _ in range(count):
        data = mutate(rng.choice(seeds), rng)
        with _no_hang():
            outcomes[_use(data)] += 1
    assert _peak() - before < _MEMORY
    assert "unprintable" not in outcomes
    # the fuzzer reaches deep: sound headers, and most of the ways to be wrong
    assert outcomes["accepted"] > count // 50
    assert len(outcomes) >= 15, outcomes


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=600))
def test_random_bytes_behind_the_magic(tail: bytes) -> None:
    """Bytes without any structure are answered as well."""
    with _no_hang():
        _use(b"GGUF\x03\0\0\0" + tail)


@pytest.mark.parametrize("data", samples())
def test_work_is_linear_in_the_header(data: bytes) -> None:
    """No mutant makes the reader ask for more bytes than the file has, plus the first and last look."""

    class Counted(BytesSource):
        asked = 0

        def read_at(self, offset: int, n: int) -> bytes:
            self.asked += n
            return super().read_at(offset, n)

    rng = random.Random(13)
    for _ in range(300):
        source = Counted(mutate(data, rng))
        with contextlib.suppress(HeaderError):
            parse(source, Path("mutant"))
        assert source.asked <= source.size + 2 * HEAD


@pytest.mark.slow
def test_a_header_at_all_limits_fits_into_the_memory() -> None:
    """65,536 keys and as many tensors with long names, 24 MB of header: less than 64 MB at the peak."""
    keys = [architecture(), *(key(f"k{index}" + "x" * 200, u32(1 << 31)) for index in range(MAX_KEYS - 1))]
    table = [
        tensor(f"blk.{index % 512}." + "x" * 40 + str(index), (1 << 20, 1, 1, 1), UNKNOWN_TYPE, 32 * index)
        for index in range(MAX_TENSORS)
    ]
    data = gguf(keys, table, data=32 * MAX_TENSORS)
    tracemalloc.start()
    header = read(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(header.metadata), len(header.tensors)) == (MAX_KEYS, MAX_TENSORS)
    assert peak < _MEMORY


def _never_end() -> None:
    while True:
        pass


def test_the_guard_catches_a_hang() -> None:
    """The guard that this file rests on stops an endless loop."""
    with pytest.raises(_HangError), _no_hang():
        _never_end()
