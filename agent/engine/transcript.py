"""What the whole model says: the reference that every split is compared with, and the frames of every cut on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent.engine.session import Logits, Tokens
from agent.engine.stage import Frame, Stage


@dataclass(frozen=True)
class Turn:
    """One decode of the reference.

    Attributes:
        tokens: int32, (n,).
        position: of the first token.
        logits: float32, (n, n_vocab).
        frames: by cut, what crossed it.
    """

    tokens: Tokens
    position: int
    logits: Logits
    frames: Mapping[int, Frame]


@dataclass(frozen=True)
class Transcript:
    """A run of the whole model: its prefill segments, then greedy decodes of one token."""

    turns: tuple[Turn, ...]
    prefills: int

    @property
    def generated(self) -> tuple[int, ...]:
        """The greedy tokens, in order; the last one was predicted and not decoded."""
        return tuple(int(turn.logits[-1].argmax()) for turn in self.turns[self.prefills - 1 :])


def transcribe(
    whole: Stage, segments: Sequence[Tokens], decode_steps: int, sequence: int = 0, cuts: Sequence[int] = ()
) -> Transcript:
    """Prefill `segments` one after the other, then decode greedily.

    Args:
        whole: a stage over all layers, with an empty `sequence`.
        segments: prompt tokens, one `llama_decode` each.
        decode_steps: greedy steps of one token after the prefill.
        sequence: id in the memory of `whole`.
        cuts: cuts whose frames are kept.
    """
    turns: list[Turn] = []
    position = 0

    def take(tokens: Tokens) -> None:
        nonlocal position
        logits, frames = whole.decode(tokens, position, sequence, leaving=cuts)
        turns.append(Turn(tokens, position, logits, frames))
        position += len(tokens)

    for segment in segments:
        take(segment)
    for _ in range(decode_steps):
        take(np.array([turns[-1].logits[-1].argmax()], dtype=np.int32))
    return Transcript(tuple(turns), len(segments))
