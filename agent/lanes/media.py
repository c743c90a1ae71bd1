"""A run with a media block in it: where its vectors stand, what the whole model says, and what stages say."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.engine.anatomy import Anatomy, Port
from agent.engine.embeddings import Embeddings, Positions
from agent.engine.model import ModelFacts
from agent.engine.session import Logits, Tokens
from agent.engine.stage import Frame, Stage
from agent.engine.wire import WireType
from agent.lanes.agreement import Agreement
from agent.lanes.chained import brought_something, send
from agent.lanes.subject import Subject

Given = Tokens | Embeddings

_SEED = 20260508

# gemma-4 E2B and E4B read an image in order; the larger ones as a whole (mtmd.cpp)
_GEMMA4_CAUSAL_WIDTHS = (1536, 2560)


@dataclass(frozen=True)
class MediaTurn:
    """One decode of the whole model.

    Attributes:
        given: tokens, or a block of embeddings.
        position: of the first of them.
        logits: float32, (n, n_vocab).
        frames: by cut, what crossed it.
    """

    given: Given
    position: int
    logits: Logits
    frames: Mapping[int, Frame]


def is_causal(facts: ModelFacts) -> bool:
    """True if an image's vectors attend to those before them only; libmtmd decides it by the projector that a family has."""
    if facts.architecture == "gemma4":
        return facts.n_embd in _GEMMA4_CAUSAL_WIDTHS
    return facts.architecture != "gemma3"


def grid_positions(facts: ModelFacts, rows: int, columns: int, position: int) -> tuple[Positions, int]:
    """Where the vectors of an image of `rows` x `columns` stand that begins at `position`, and the positions that it takes.

    As libmtmd lays them out: one axis: one after the other. M-RoPE: all at one time, by row and column, and the block takes as
    many positions as its longer side has. Hunyuan VL: one after the other, with a vector before the image, one after each
    row and one behind it; the other axes are column, row and number of the image.
    """
    if facts.position_axes == 1:
        return np.arange(position, position + rows * columns, dtype=np.int32)[np.newaxis], rows * columns
    if facts.architecture == "hunyuan_vl":
        count = rows * (columns + 1) + 2
        times = np.arange(position, position + count, dtype=np.int32)
        row, column = np.divmod(np.arange(count - 2, dtype=np.int32), columns + 1)
        inside = np.stack([times[1:-1], column, row, np.zeros_like(row)])
        ends = [np.repeat(times[[end]], 4)[:, np.newaxis] for end in (0, -1)]
        return np.concatenate([ends[0], inside, ends[1]], axis=1), count
    row, column = np.divmod(np.arange(rows * columns, dtype=np.int32), columns)
    zero = np.zeros_like(row)
    return np.stack([zero + position, row + position, column + position, zero]), max(rows, columns)


def random_block(facts: ModelFacts, rows: int, columns: int, position: int, seed: int = 0) -> Embeddings:
    """A block of random vectors laid out as an image."""
    positions, span = grid_positions(facts, rows, columns, position)
    shape = (positions.shape[1], facts.n_embd_inp)
    vectors = np.random.default_rng(_SEED + seed).standard_normal(shape, dtype=np.float32)
    return Embeddings(vectors=vectors, positions=positions, span=span, causal=is_causal(facts))


def span_of(given: Given) -> int:
    """How many positions it takes."""
    return given.span if isinstance(given, Embeddings) else len(given)


def transcribe_media(
    whole: Stage, segments: Sequence[Given], decode_steps: int, cuts: Sequence[int] = ()
) -> tuple[MediaTurn, ...]:
    """Prefill `segments` one after the other into an empty sequence 0, then decode greedily for `decode_steps` tokens."""
    turns: list[MediaTurn] = []
    position = 0
    for step in range(len(segments) + decode_steps):
        given = segments[step] if step < len(segments) else np.array([turns[-1].logits[-1].argmax()], dtype=np.int32)
        logits, frames = decode(whole, given, position, None, cuts)
        turns.append(MediaTurn(given, position, logits, frames))
        position += span_of(given)
    return tuple(turns)


def decode(
    stage: Stage, given: Given, position: int, arriving: Frame | None = None, leaving: Sequence[int] = ()
) -> tuple[Logits, dict[int, Frame]]:
    """Decode tokens or a block in sequence 0 of a stage."""
    if isinstance(given, Embeddings):
        return stage.decode_embeddings(given, 0, arriving, leaving)
    return stage.decode(given, position, 0, arriving, leaving)


def sweep_cut(subject: Subject, anatomy: Anatomy, turns: Sequence[MediaTurn], cut: int) -> tuple[Agreement, bool]:
    """The upper stage of one cut, fed from the transcript: its agreement, and whether the wire brought something."""
    agreement = Agreement()
    with subject.stage(anatomy, cut, subject.n_layer) as stage:
        for turn in turns:
            frame = send(subject, ports(anatomy, cut, turn.given), turn.frames[cut], WireType.F32)
            logits, _ = decode(stage, turn.given, turn.position, frame)
            agreement.compare(turn.logits, logits, turn.position)
        return agreement, brought_something(stage)


def run_stages(
    subject: Subject, anatomy: Anatomy, turns: Sequence[MediaTurn], cuts: Sequence[int]
) -> tuple[Agreement, bool]:
    """The stages that `cuts` make, live, one after the other: agreement, and whether every wire brought something."""
    agreement = Agreement()
    with contextlib.ExitStack() as stack:
        stages = [
            stack.enter_context(subject.stage(anatomy, start, end))
            for start, end in zip((0, *cuts), (*cuts, subject.n_layer), strict=True)
        ]
        for turn in turns:
            frame: Frame | None = None
            for stage in stages[:-1]:
                _, frames = decode(stage, turn.given, turn.position, frame, (stage.end,))
                frame = send(subject, ports(anatomy, stage.end, turn.given), frames[stage.end], WireType.F32)
            logits, _ = decode(stages[-1], turn.given, turn.position, frame)
            agreement.compare(turn.logits, logits, turn.position)
        return agreement, all(brought_something(stage) for stage in stages[1:])


def ports(anatomy: Anatomy, cut: int, given: Given) -> tuple[Port, ...]:
    """What crosses `cut` when this is decoded."""
    kind = anatomy.of_embeddings if isinstance(given, Embeddings) else anatomy
    return kind.ports(cut, len(given))
