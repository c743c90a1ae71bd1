"""What is wrong with the whole model and the split alike, so that they agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agent.engine.embeddings import Vectors
from agent.engine.session import Logits, Session, Shape, Tap, Tokens
from agent.engine.transcript import Transcript
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

_SHARE = 0.1  # of the logits' standard deviation


class AlikeWrong(Subject):
    """A kernel of the new pin computes something else, wherever it runs."""

    def session(self, shape: Shape) -> Session:
        """A session of that pin."""
        return _OtherKernel(self.model, shape)

    def reference(self, workload: Workload) -> Transcript:
        """What the whole model says on that pin."""
        sound = super().reference(workload)
        return replace(sound, turns=tuple(replace(turn, logits=_other(turn.logits)) for turn in sound.turns))


class _OtherKernel(Session):
    def _decode(self, given: Tokens | Vectors, positions: Tokens, sequences: Tokens, tap: Tap | None) -> Logits:
        return _other(super()._decode(given, positions, sequences, tap))


def _other(logits: Logits) -> Logits:
    wave = np.cos(np.arange(logits.shape[1], dtype=np.float32))
    other: Logits = logits + np.float32(_SHARE) * logits.std(axis=1, keepdims=True) * wave
    return other
