"""What a lane feeds the model: prompts of seeded random tokens, cut into the segments that are decoded at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agent.engine.session import Tokens

_SEED = 20260507


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A run of the model.

    Attributes:
        segments: tokens of each prefill, one `llama_decode` each.
        decode_steps: greedy steps after them.
        micro_batch: `n_ubatch`; a prefill longer than that spans several graphs.
        branch: prompts of another branch share the first segment only.
        trunk: prompts of another trunk share nothing.
    """

    segments: tuple[int, ...]
    decode_steps: int
    micro_batch: int
    branch: int = 0
    trunk: int = 0

    def prompt(self, n_vocab: int) -> tuple[Tokens, ...]:
        """The same tokens every time. Token 0 is left out, since many vocabularies give it a meaning."""
        trunk = (
            np.random.default_rng(_SEED + 1000 * self.trunk).integers(1, n_vocab, sum(self.segments)).astype(np.int32)
        )
        segments = np.split(trunk, np.cumsum(self.segments)[:-1])
        if self.branch:
            branch = np.random.default_rng(_SEED + 1000 * self.trunk + self.branch)
            segments[1:] = [branch.integers(1, n_vocab, len(segment)).astype(np.int32) for segment in segments[1:]]
        return tuple(segments)
