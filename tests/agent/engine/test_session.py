"""Sessions: sequences, positions, and states that move between them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np
import pytest

from agent.engine.anatomy import Anatomy
from agent.engine.session import PARTIAL_STATE, Session, Shape
from agent.errors import ContextFailed, DecodeFailed, StateRefused
from tests.agent.conftest import ROOT, SMALL, Subjects

PROMPT = np.arange(1, 21, dtype=np.int32)
NEXT = np.array([7, 9, 11], dtype=np.int32)

Make = Callable[[str], Session]


@pytest.fixture
def make(subjects: Subjects, request: pytest.FixtureRequest) -> Make:
    """Open sessions that are closed at the end of the test."""

    def session(family: str) -> Session:
        opened = Session(subjects(family).model, Shape(micro_batch=16))
        request.addfinalizer(opened.close)
        return opened

    return session


@pytest.mark.parametrize("family", SMALL)
def test_every_token_has_logits(make: Make, family: str) -> None:
    """A decode gives one finite row a token, and memory ends where the tokens do."""
    session = make(family)
    assert session.last_position(0) == -1
    logits = session.decode(PROMPT, 0)
    assert logits.shape == (20, session.model.facts.n_vocab)
    assert logits.dtype == np.float32
    assert np.isfinite(logits).all()
    assert session.last_position(0) == 19
    assert session.last_position(1) == -1


@pytest.mark.parametrize("family", SMALL)
def test_a_state_goes_on_in_another_session_and_sequence(make: Make, family: str) -> None:
    """What was exported from sequence 0 of one context continues in sequence 2 of another, bit for bit."""
    here, there = make(family), make(family)
    here.decode(PROMPT, 0, 0)
    state = here.export_state(0)
    there.import_state(state, 2)
    assert there.last_position(2) == 19
    assert there.last_position(0) == -1
    assert here.decode(NEXT, 20, 0).tobytes() == there.decode(NEXT, 20, 2).tobytes()


@pytest.mark.parametrize("family", SMALL)
def test_an_export_changes_nothing_and_repeats(make: Make, family: str) -> None:
    """The same sequence gives the same bytes again, and an imported one exports what was imported."""
    here, there = make(family), make(family)
    here.decode(PROMPT, 0, 0)
    state = here.export_state(0)
    assert here.export_state(0) == state
    there.import_state(state, 0)
    assert there.export_state(0) == state
    assert 0 < len(here.export_state(0, PARTIAL_STATE)) <= len(state)


@pytest.mark.parametrize("family", SMALL)
def test_a_borrowed_sequence_outlives_its_lender(make: Make, family: str) -> None:
    """A borrower goes on exactly, and still does after the lender was removed."""
    session, cold = make(family), make(family)
    expected = cold.decode(PROMPT, 0), cold.decode(NEXT, 20)
    session.decode(PROMPT, 0, 0)
    session.copy_sequence(0, 1)
    session.remove_sequence(0)
    assert session.last_position(0) == -1
    assert session.last_position(1) == 19
    assert session.decode(NEXT, 20, 1).tobytes() == expected[1].tobytes()
    # the lender's place is free and clean
    assert session.decode(PROMPT, 0, 0).tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("family", SMALL)
def test_an_earlier_request_leaves_nothing_behind(make: Make, family: str) -> None:
    """E14: prompt A, removed, then prompt B says what prompt B says in a fresh session."""
    used, fresh = make(family), make(family)
    used.decode(PROMPT[::-1].copy(), 0)
    used.remove_sequence(0)
    assert used.decode(PROMPT, 0).tobytes() == fresh.decode(PROMPT, 0).tobytes()


@pytest.mark.parametrize("family", SMALL)
def test_sequences_do_not_see_each_other(make: Make, family: str) -> None:
    """A prompt says the same beside another one as alone."""
    together, alone = make(family), make(family)
    together.decode(PROMPT[::-1].copy(), 0, 0)
    assert together.decode(PROMPT, 0, 1).tobytes() == alone.decode(PROMPT, 0, 1).tobytes()


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize("position", [-1, 0, 19, 21, 22])
def test_a_position_that_does_not_follow_is_refused(make: Make, family: str, position: int) -> None:
    """Off by one in either direction is an error, not another answer, and the message says where."""
    session = make(family)
    session.decode(PROMPT, 0)
    with pytest.raises(DecodeFailed, match=f"at position {position} of sequence 0"):
        session.decode(NEXT[:1], position)


@pytest.mark.parametrize("sequence", [-1, 4, 1000])
def test_a_sequence_that_the_memory_does_not_have_is_refused(make: Make, sequence: int) -> None:
    """Ids outside of the memory are an error."""
    with pytest.raises(DecodeFailed):
        make("qwen3-dense").decode(PROMPT, 0, sequence)


def test_a_failure_in_a_tap_reaches_the_caller(make: Make) -> None:
    """An exception inside native code's callback comes out of `decode`, and the next decode is sound."""

    class Broken:
        wanted: Container[int] | None = None

        def ask(self, ordinal: int, pointer: int) -> bool:
            raise KeyError(ordinal, pointer)

        def done(self, ordinal: int, pointer: int) -> None:
            raise AssertionError(ordinal, pointer)

    session = make("qwen3-dense")
    with pytest.raises(KeyError):
        session.decode(PROMPT, 0, 1, Broken())
    session.remove_sequence(1)
    assert session.decode(PROMPT, 0, 0).tobytes() == make("qwen3-dense").decode(PROMPT, 0, 0).tobytes()


@pytest.mark.parametrize("shape", [Shape(micro_batch=16, sequences=1000), Shape(micro_batch=0, context=0)])
def test_a_context_that_llama_cpp_does_not_make_is_an_infrastructure_error(subjects: Subjects, shape: Shape) -> None:
    """The message says for which file, how many cells and which micro-batch."""
    with pytest.raises(ContextFailed, match=r"creates no context for qwen3-.*\.gguf .*micro-batch") as refusal:
        Session(subjects("qwen3-dense").model, shape)
    assert refusal.value.exit_code == 4


@pytest.mark.parametrize("family", SMALL)
def test_every_node_has_its_place(make: Make, family: str) -> None:
    """Nodes are counted over all micro-batches, with a tap that wants a few of them as with one that is asked for each."""

    class Count:
        def __init__(self, wanted: frozenset[int] | None) -> None:
            self.wanted: Container[int] | None = wanted
            self.asked: list[int] = []
            self.given: list[int] = []

        def ask(self, ordinal: int, pointer: int) -> bool:
            self.asked.append(ordinal)
            return pointer > 0 and ordinal in (3, 40)

        def done(self, ordinal: int, pointer: int) -> None:
            self.given.append(ordinal * bool(pointer))

    session, few, each = make(family), Count(frozenset({3, 40})), Count(None)
    for sequence, tap in enumerate((few, each)):
        session.decode(PROMPT, 0, sequence, tap)
        assert tap.given == [3, 40]
        assert session.nodes_run > 100
    assert few.asked == []
    assert each.asked == list(range(session.nodes_run))


def test_an_empty_state_is_refused(make: Make) -> None:
    """Nothing read of nothing is no restore."""
    with pytest.raises(StateRefused, match="0 of 0 bytes"):
        make("qwen3-dense").import_state(b"", 1)


_CHILD = """
import json, sys
from pathlib import Path
import numpy as np
from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.engine.session import Session, Shape
from agent.errors import StateRefused

shape = Shape(micro_batch=16)
with Model(Path(sys.argv[1]), choose_device("cpu")) as model:
    with Session(model, shape) as session:
        session.decode(np.arange(1, 21, dtype=np.int32), 0)
        state = session.export_state(0)
    lengths = sorted({0, 1, 3, 4, 8, 12, 13, 20, 28, 40, len(state) // 3, len(state) // 2, len(state) - 4, len(state) - 1})
    cases = {f"first {length}": state[:length] for length in lengths}
    cases["last half"] = state[len(state) // 2 :]
    cases["zeros"] = bytes(len(state))
    cases["ones"] = b"\\xff" * len(state)
    cases["magic alone is right"] = state[:4] + b"\\xff" * (len(state) - 4)
    for name, data in cases.items():
        with Session(model, shape) as session:
            try:
                session.import_state(data, 1)
                answer = "imported"
            except StateRefused:
                answer = "refused"
        print(json.dumps([name, answer]), flush=True)
"""


@pytest.mark.parametrize(
    "family",
    [
        "qwen3-dense",
        "lfm2",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("rwkv7", "glm47-flash", "falcon-h1")),
    ],
)
def test_a_damaged_state_is_refused_and_never_aborts(twin: Callable[[str], Path], family: str) -> None:
    """Cut at any field, shifted, zeroed or overwritten: each is refused, and the process lives."""
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(twin(family))], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr[-2000:]
    answers = dict(map(json.loads, child.stdout.splitlines()))
    assert len(answers) >= 15
    assert set(answers.values()) == {"refused"}, answers


@pytest.mark.parametrize("other", ["lfm2", "rwkv7", "mamba", "glm47-flash"])
def test_a_state_of_another_model_is_refused(subjects: Subjects, make: Make, other: str) -> None:
    """A state does not fit into a model with other layers."""
    here, there = make("qwen3-dense"), make(other)
    here.decode(PROMPT, 0)
    with pytest.raises(StateRefused):
        there.import_state(here.export_state(0), 1)


@pytest.mark.parametrize("family", SMALL)
def test_the_logits_of_the_last_tokens_only(make: Make, subjects: Subjects, family: str) -> None:
    """The last rows of what all tokens have, alone and of each part of a batch, but for rounding; later tokens go on from it."""
    whole = make(family)
    with Session(subjects(family).model, Shape(micro_batch=16, outputs=3)) as few:
        pairs = [
            (few.decode(PROMPT, 0), whole.decode(PROMPT, 0)),
            (few.decode(NEXT[:1], 20), whole.decode(NEXT[:1], 20)),
        ]
        parts = [(NEXT[1:2], 21, 0), (PROMPT[:5], 0, 1), (PROMPT[5:7], 0, 2)]
        pairs += zip(few.decode_together(parts), whole.decode_together(parts), strict=True)
    assert [len(ours) for ours, _ in pairs] == [3, 1, 1, 3, 2]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs[-3:], rtol=0, atol=1e-4 * float(theirs.std()))


@pytest.mark.parametrize("family", SMALL)
def test_micro_batches_without_logits_are_graphs_of_their_own(subjects: Subjects, family: str) -> None:
    """llama.cpp keeps the graph of a micro-batch without logits in another place than that of one with them."""
    every = Anatomy(subjects(family).model, Shape(micro_batch=16)).step(40)
    some = Anatomy(subjects(family).model, Shape(micro_batch=16, outputs=3)).step(40)
    assert len(some.graphs) == len(every.graphs) == 3
    assert some.n_nodes == every.n_nodes
    assert [len(graph.tensors) for graph in some.graphs] == [len(graph.tensors) for graph in every.graphs]
