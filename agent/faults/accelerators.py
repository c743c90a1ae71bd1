"""Devices that compute something else than the CPU does."""

from __future__ import annotations

import numpy as np

from agent.engine.session import Logits, Session, Shape, Tap, Tokens
from agent.lanes.subject import Subject


class _Scaled(Session):
    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        return super().decode(tokens, position, sequence, tap) * np.float32(1.25)


class ScaledDevice(Subject):
    """Logits come out a quarter too large: every greedy token is right."""

    def session(self, shape: Shape) -> Session:
        """A session on that device."""
        return _Scaled(self.model, shape)


class _Noisy(Session):
    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        logits = super().decode(tokens, position, sequence, tap)
        noise = np.random.default_rng(position).standard_normal(logits.shape, dtype=np.float32)
        noisy: Logits = logits + noise * np.float32(0.2 * logits.std())
        return noisy


class NoisyDevice(Subject):
    """Logits come out with noise of a fifth of their spread."""

    def session(self, shape: Shape) -> Session:
        """A session on that device."""
        return _Noisy(self.model, shape)
