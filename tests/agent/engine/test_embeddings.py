"""Embeddings in place of token ids: the session that decodes them, the graph that they run, and the stage above a cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from agent.engine.embeddings import Embeddings, Vectors
from agent.engine.session import Logits, Session, Shape, Tokens
from agent.engine.stage import Frame, Stage
from agent.errors import GraphChanged, ParamsInvalid
from agent.lanes.media import random_block
from agent.lanes.subject import Subject
from tests.agent.conftest import Subjects
from tests.agent.engine.test_dataflow import WIDTH, Drawing, layer, start

TEXT = np.arange(1, 13, dtype=np.int32)
SHAPE = Shape(micro_batch=16)


def table_of(path: Path) -> Vectors:
    """The embedding of every token, as the file holds it."""
    reader = gguf.GGUFReader(path)
    data = next(tensor.data for tensor in reader.tensors if tensor.name == "token_embd.weight")
    return np.array(data, dtype=np.float32)


def as_text(subject: Subject, tokens: Tokens, table: Vectors) -> Embeddings:
    """A block that says what the tokens say: their embeddings, at the positions that text has."""
    facts, count = subject.model.facts, len(tokens)
    vectors = np.zeros((count, facts.n_embd_inp), dtype=np.float32)
    vectors[:, : facts.n_embd] = table[tokens]
    axes = np.repeat(np.arange(count, dtype=np.int32)[np.newaxis], facts.position_axes, axis=0)
    axes[3:] = 0  # text has no fourth axis
    return Embeddings(vectors=vectors, positions=axes, span=count)


@pytest.mark.parametrize("family", ["qwen3-dense", "qwen2vl", "qwen3vl", "hunyuan-vl", "lfm2"])
def test_the_embeddings_of_tokens_say_what_the_tokens_say(
    subjects: Subjects, twin: Callable[[str], Path], family: str
) -> None:
    """Two ways into one model, over two micro-batches: equal bit for bit, with one axis of position and with four."""
    subject, tokens = subjects(family), np.arange(1, 25, dtype=np.int32)
    block = as_text(subject, tokens, table_of(twin(family)))
    with Session(subject.model, SHAPE) as by_id, Session(subject.model, SHAPE) as by_vector:
        assert by_id.decode(tokens, 0).tobytes() == by_vector.decode_embeddings(block).tobytes()
        assert by_id.decode(TEXT, 24).tobytes() == by_vector.decode(TEXT, 24).tobytes()


def test_rows_and_columns_are_told_apart(subjects: Subjects) -> None:
    """With M-RoPE every axis of position counts."""
    subject = subjects("qwen2vl")
    block = random_block(subject.model.facts, 3, 5, 0)
    said = set()
    for order in ([0, 1, 2, 3], [0, 2, 1, 3]):
        with Session(subject.model, SHAPE) as session:
            said.add(session.decode_embeddings(replace(block, positions=block.positions[order])).tobytes())
    assert len(said) == 2


def test_a_block_attends_to_itself_as_a_whole_where_it_is_asked_to(subjects: Subjects) -> None:
    """Without the causal mask the first vector sees the last one; text that follows is causal again."""
    subject = subjects("gemma3-vl")
    block = random_block(subject.model.facts, 3, 5, 0)
    assert not block.causal

    def first_of(block: Embeddings, last: float) -> tuple[Logits, Logits]:
        vectors = block.vectors.copy()
        vectors[-1] = last
        with Session(subject.model, SHAPE) as session:
            first = session.decode_embeddings(replace(block, vectors=vectors))[0]
            text = session.decode(TEXT, 15)
        return first, text

    assert first_of(block, 0.1)[0].tobytes() != first_of(block, 0.9)[0].tobytes()
    causal = replace(block, causal=True)
    assert first_of(causal, 0.1)[0].tobytes() == first_of(causal, 0.9)[0].tobytes()
    with Session(subject.model, SHAPE) as session:
        session.decode_embeddings(replace(block, vectors=np.full_like(block.vectors, 0.1)))
        whole = session.decode(TEXT, 15)
        session.remove_sequence(0)
        session.decode_embeddings(replace(block, vectors=np.full_like(block.vectors, 0.1)))
        parts = [session.decode(TEXT[:1], 15), session.decode(TEXT[1:], 16)]
    assert np.allclose(whole, np.concatenate(parts), atol=0.05)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vectors": np.zeros((15, 63), dtype=np.float32)}, r"\(n, 64\)"),
        ({"vectors": np.zeros((14, 64), dtype=np.float32)}, r"\(n, 64\)"),
        ({"positions": np.zeros((1, 15), dtype=np.int32)}, r"\(4, n\)"),
        ({"positions": np.full((4, 15), 300, dtype=np.int32)}, "position 300 does not fit"),
    ],
)
def test_a_block_of_the_wrong_shape_never_reaches_native_code(
    subjects: Subjects, change: dict[str, Any], words: str
) -> None:
    """llama.cpp would read on behind the arrays."""
    subject = subjects("qwen2vl")
    block = replace(random_block(subject.model.facts, 3, 5, 0), **change)
    with Session(subject.model, SHAPE) as session, pytest.raises(ParamsInvalid, match=words):
        session.decode_embeddings(block)


def test_a_whole_block_larger_than_a_micro_batch_is_refused(subjects: Subjects) -> None:
    """llama.cpp asserts it, which would end the process."""
    subject = subjects("gemma3-vl")
    with Session(subject.model, SHAPE) as session, pytest.raises(ParamsInvalid, match="micro-batch of 16"):
        session.decode_embeddings(random_block(subject.model.facts, 4, 6, 0))


def test_the_contract_says_which_columns_cross_at_every_cut(subjects: Subjects) -> None:
    """Layers 0 to 2 add a part of the embeddings each: below cut 3 the parts of the layers above cross."""
    contract = subjects("qwen3vl").anatomy(16).of_embeddings.contract
    crossing = {
        cut.layer: [item.label for item in cut.frontier if item.of_input] for cut in contract.cuts if cut.layer < 4
    }
    assert crossing == {1: ["inp_embd[128:192]", "inp_embd[192:256]"], 2: ["inp_embd[192:256]"], 3: []}
    assert contract.legal_cuts == (1, 2, 3, 4, 5, 6, 7)
    assert not any(cut.tokens for cut in contract.cuts)


@pytest.mark.parametrize("family", ["gemma4", "gemma3n"])
def test_embeddings_that_llama_cpp_renames_are_still_known(subjects: Subjects, family: str) -> None:
    """Inputs of the single layers are made from the block; taken for a mask, they would not cross."""
    subject = subjects(family)
    contract = subject.anatomy(16).of_embeddings.contract
    assert contract.legal_cuts == subject.contract.legal_cuts
    assert all(any("inp_per_layer" in item.label for item in contract.cut(cut).frontier) for cut in contract.legal_cuts)


def prefilled(subject: Subject, start: int, block: Embeddings, frames: list[Frame]) -> Logits:
    """What the stage from `start` on says of text and a block, given the frames of its cut."""
    with Stage(subject.anatomy(16), Session(subject.model, SHAPE), start, subject.n_layer) as stage:
        stage.decode(TEXT, 0, 0, frames[0])
        logits, _ = stage.decode_embeddings(block, 0, frames[1])
        return logits


@pytest.mark.parametrize("family", ["qwen3vl", "gemma4"])
def test_every_legal_cut_is_exact_and_the_truth_is_kept_from_the_stage_above(subjects: Subjects, family: str) -> None:
    """A stage that is given NaN where the vectors were says the same: it has nothing but positions and the frame."""
    subject = subjects(family)
    cuts, block = subject.contract.legal_cuts, random_block(subject.model.facts, 3, 5, len(TEXT))
    with Stage(subject.anatomy(16), Session(subject.model, SHAPE), 0, subject.n_layer) as whole:
        _, text = whole.decode(TEXT, 0, 0, leaving=cuts)
        expected, media = whole.decode_embeddings(block, 0, leaving=cuts)
    hidden = replace(block, vectors=np.full_like(block.vectors, np.nan))
    for cut in cuts:
        assert prefilled(subject, cut, hidden, [text[cut], media[cut]]).tobytes() == expected.tobytes(), cut


def test_columns_that_are_lost_change_the_answer(subjects: Subjects) -> None:
    """What the contract lists is needed: without it the stage above says something else."""
    subject, cut = subjects("qwen3vl"), 2
    block = random_block(subject.model.facts, 3, 5, len(TEXT))
    with Stage(subject.anatomy(16), Session(subject.model, SHAPE), 0, subject.n_layer) as whole:
        _, text = whole.decode(TEXT, 0, 0, leaving=(cut,))
        expected, media = whole.decode_embeddings(block, 0, leaving=(cut,))
    *nodes, columns = media[cut]
    assert columns.nbytes == 15 * 64 * 4
    lost = (*nodes, np.zeros_like(columns))
    assert prefilled(subject, cut, block, [text[cut], lost]).tobytes() != expected.tobytes()


def test_a_stage_without_a_frame_is_refused(subjects: Subjects) -> None:
    """It would otherwise work on garbage and say so of the model."""
    subject = subjects("qwen2vl")
    block = random_block(subject.model.facts, 3, 5, 0)
    with (
        Stage(subject.anatomy(16), Session(subject.model, SHAPE), 4, 8) as stage,
        pytest.raises(GraphChanged, match="no frame"),
    ):
        stage.decode_embeddings(block, 0)


# -- on graphs made by hand ------------------------------------------------------------------------------------------------


def drawn(name: str, view: tuple[int, int, int] | None, *, host: bool = True) -> Drawing:
    """Two layers, and an addition in the second one of a part of the given vectors, as (offset, width, rows), or of all."""
    drawing, _, _ = start()
    given = drawing.leaf(name, host=host, shape=(4 * WIDTH, 3, 1, 1))
    hidden = drawing.node("embd", "VIEW", given, view_of=given)
    last = layer(drawing, 0, hidden)
    part = given
    if view is not None:
        offset, width, rows = view
        part = drawing.node("embd (view)", "VIEW", given, view_of=given)
        drawing.tensors[part] = drawing.tensors[part]._replace(shape=(width, rows, 1, 1), view_offset=4 * offset)
    layer(drawing, 1, drawing.node("deepstack_out-1", "ADD", last, part))
    return drawing


@pytest.mark.parametrize("name", ["inp_embd", "embd"])
@pytest.mark.parametrize(
    ("view", "columns"),
    [
        ((2 * WIDTH, WIDTH, 3), (2 * WIDTH, 3 * WIDTH)),
        (None, (0, 4 * WIDTH)),
        ((2 * WIDTH, WIDTH, 2), (0, 4 * WIDTH)),  # no whole columns: rather too much than too little
        ((3 * WIDTH, 2 * WIDTH, 3), (0, 4 * WIDTH)),
    ],
)
def test_columns_are_read_off_the_views(name: str, view: tuple[int, int, int] | None, columns: tuple[int, int]) -> None:
    """A part of each row is a range of columns; anything else is taken for the whole row."""
    drawing = drawn(name, view)
    assert drawing.flow.boundary(1).columns == (columns,)
    assert drawing.names(drawing.flow.boundary(1)) == ["l_out-0"]
    assert [item.label for item in drawing.contract(2).cut(1).frontier] == [
        "l_out-0",
        f"inp_embd[{columns[0]}:{columns[1]}]",
    ]


def test_a_copy_on_another_device_is_still_what_the_host_gave() -> None:
    """Seen on a device of ggml's RPC backend: the copy that a device reads is not flagged as an input."""
    drawing = drawn("embd", None, host=False)
    assert drawing.flow.boundary(1).columns == ((0, 4 * WIDTH),)


def test_a_mask_that_happens_to_be_called_so_is_none(subjects: Subjects) -> None:
    """A computed tensor called `embd`, as in a graph of tokens, is a tensor like others."""
    step = subjects("qwen3-dense").anatomy(16).step(1)
    assert any(tensor.name == "embd" and tensor.ordinal is not None for tensor in step.graphs[0].tensors)
    assert all(not cut.columns for cut in [subjects("qwen3-dense").anatomy(16)._flow(1)[0].boundary(3)])
