"""Sessions that decode wrongly."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from agent.engine.session import Logits, Part, Session, Tap, Tokens

_SOUND_PROMPTS = 4


class StaleLogits(Session):
    """Every second decode of one token hands out the logits of the decode before (a buffer freed too early, as in B2)."""

    _count = 0
    _last: Logits | None = None

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode, and sometimes return the past."""
        logits = super().decode(tokens, position, sequence, tap)
        self._count += len(tokens) == 1
        stale = self._last if len(tokens) == 1 and self._count % 2 == 0 else None
        self._last = logits[-1:]
        return logits if stale is None else stale


class SwappedOutputs(Session):
    """The rows of two tokens change places when a batch spans several micro-batches (a wrong stride, as in B6)."""

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode and swap."""
        logits = super().decode(tokens, position, sequence, tap)
        if len(tokens) > self.shape.micro_batch:
            logits[[0, -1]] = logits[[-1, 0]]
        return logits


class NotANumber(Session):
    """Logits are NaN."""

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode and lose it."""
        return np.full_like(super().decode(tokens, position, sequence, tap), np.nan)


class Aborting(Session):
    """Native code aborts on a batch of several micro-batches (too few graph nodes, as in B8)."""

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Abort as `GGML_ASSERT` does."""
        if len(tokens) > self.shape.micro_batch:
            os.write(2, b"GGML_ASSERT(cgraph->n_nodes < cgraph->size) failed\n")
            os.abort()
        return super().decode(tokens, position, sequence, tap)


class ThreadDependent(Session):
    """The result depends on the number of threads."""

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode, off by one unit in the last place for every further thread."""
        logits = super().decode(tokens, position, sequence, tap)
        for _ in range(self.shape.threads - 1):
            logits = np.nextafter(logits, np.float32(np.inf))
        return logits


class ShapeDependent(Session):
    """A kernel for one token at a time computes something else."""

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode, wrongly where a micro-batch is one token."""
        logits = super().decode(tokens, position, sequence, tap)
        return logits if self.shape.micro_batch > 1 else np.roll(logits, 1, axis=1)


class OneSequenceForAll(Session):
    """Two sequences share their cells: whatever is decoded goes to sequence 0."""

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode somewhere else."""
        del sequence
        return super().decode(tokens, position, 0, tap)


class MixedNeighbours(Session):
    """Of three or more sequences in a batch, the third one gets what belongs to the second one."""

    def decode_together(self, parts: Sequence[Part], tap: Tap | None = None) -> list[Logits]:
        """Decode, with the third row of outputs from the second sequence."""
        logits = super().decode_together(parts, tap)
        if len(logits) > 2:
            logits[2] = np.broadcast_to(logits[1][-1], logits[2].shape)
        return logits


class WornMemory(Session):
    """After four prompts through one memory every logit is that of the token before."""

    _prompts = 0

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode, and count what begins."""
        self._prompts += position == 0
        return self._wear(super().decode(tokens, position, sequence, tap))

    def decode_together(self, parts: Sequence[Part], tap: Tap | None = None) -> list[Logits]:
        """Decode, and count what begins."""
        self._prompts += sum(position == 0 for _, position, _ in parts)
        return [self._wear(logits) for logits in super().decode_together(parts, tap)]

    def _wear(self, logits: Logits) -> Logits:
        return logits if self._prompts <= _SOUND_PROMPTS else np.roll(logits, 1, axis=1)


class LazyTakeBack(Session):
    """Tokens are taken back, or so it says."""

    def remove_tail(self, sequence: int, position: int) -> bool:
        """Do nothing and say yes."""
        del sequence, position
        return True


class ShortExport(Session):
    """An export is shorter than the state and says nothing."""

    def export_state(self, sequence: int, flags: int = 0) -> bytes:
        """Three quarters of it."""
        state = super().export_state(sequence, flags)
        return state[: len(state) * 3 // 4]


class PartialExport(Session):
    """An export leaves out attention: recurrent and windowed state only, whatever was asked."""

    def export_state(self, sequence: int, flags: int = 0) -> bytes:
        """The partial state."""
        return super().export_state(sequence, flags | 1)

    def import_state(self, state: bytes, sequence: int, flags: int = 0) -> None:
        """As it was exported."""
        super().import_state(state, sequence, flags | 1)
