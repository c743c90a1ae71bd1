"""Sessions that are used again: empty, the same bits as a new one, and never one in which something failed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.engine.session import Session, Shape
from agent.engine.spare import session_of
from agent.errors import ParamsInvalid

SHAPE = Shape(micro_batch=16)
PROMPT = np.arange(1, 25, dtype=np.int32)


@pytest.fixture(params=["qwen3-dense", "mamba", "jamba", "gemma3"])
def model(request: pytest.FixtureRequest, twin: Callable[[str], Path]) -> Iterator[Model]:
    """Attention, recurrent state, both, and windows."""
    with Model(twin(request.param), choose_device("cpu")) as loaded:
        yield loaded


def test_it_comes_back_empty_and_says_the_same(model: Model) -> None:
    """After other tokens in all its sequences, the bits of a new session."""
    with Session(model, SHAPE) as new:
        expected = new.decode(PROMPT, 0)
    with session_of(model, SHAPE) as first:
        handle = first.handle
        for sequence in range(SHAPE.sequences):
            first.decode(PROMPT[::-1], 0, sequence)
    with session_of(model, SHAPE) as again:
        assert again.handle == handle
        assert [again.last_position(sequence) for sequence in range(SHAPE.sequences)] == [-1] * SHAPE.sequences
        np.testing.assert_array_equal(again.decode(PROMPT, 0), expected)


def test_two_at_once_are_two(model: Model) -> None:
    """What is lent is lent once, and closing it twice gives it back once."""
    with session_of(model, SHAPE) as first, session_of(model, SHAPE) as second:
        assert first.handle != second.handle
    first.close()
    assert len(model.spares) == 2
    with session_of(model, SHAPE) as third, session_of(model, SHAPE) as fourth:
        assert third is not fourth


def test_another_shape_is_another_session(model: Model) -> None:
    """Threads change bits, so they are part of what is asked for."""
    with session_of(model, SHAPE) as first:
        handle = first.handle
    with session_of(model, Shape(micro_batch=16, threads=2)) as other:
        assert other.handle != handle


def test_few_wait(model: Model) -> None:
    """The one that waited longest is freed; all are when the model goes."""
    sessions = [session_of(model, Shape(micro_batch=size)) for size in (4, 8, 12, 16, 20, 24)]
    for session in sessions:
        session.close()
    assert [spare.shape.micro_batch for spare in model.spares if isinstance(spare, Session)] == [12, 16, 20, 24]
    assert [session.handle is None for session in sessions] == [True, True, False, False, False, False]
    model.close()
    assert all(session.handle is None for session in sessions)


def test_a_session_in_which_a_decode_failed_never_comes_back(model: Model) -> None:
    """Nobody knows what is in it."""
    with session_of(model, SHAPE) as session:
        with pytest.raises(ParamsInvalid):
            session.decode(PROMPT, SHAPE.context)  # refused before llama.cpp saw it
        before = session.sound

        class Broken:
            """A tap that fails in the middle of a graph."""

            wanted: Container[int] | None = None

            def ask(self, ordinal: int, pointer: int) -> bool:
                raise RuntimeError(f"node {ordinal} at {pointer:#x}")

            def done(self, ordinal: int, pointer: int) -> None:
                """Never called."""

        with pytest.raises(RuntimeError, match="node 0"):
            session.decode(PROMPT, 0, tap=Broken())
        assert (before, session.sound) == (True, False)
    assert session.handle is None
    assert not model.spares
