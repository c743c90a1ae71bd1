"""How far two runs agree: bit for bit, in their tokens, and in their error."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from agent.engine.session import Logits
from agent.engine.stage import Frame


@dataclass
class Agreement:
    """The comparison of the logits of a run with those of the reference, over any number of decodes.

    Attributes:
        positions: logit vectors compared.
        identical: how many of them are equal bit for bit.
        finite: False as soon as either side holds a NaN or an infinity.
        max_error: largest absolute difference.
        token_flips: positions whose greedy token differs.
        largest_flip: of those, the largest lead that the reference's token had over its runner-up, in standard deviations of
            the logits of that position: rounding turns over small leads only.
        first: description of the first difference.
        position_errors: normalised error of each position.
    """

    positions: int = 0
    identical: int = 0
    finite: bool = True
    max_error: float = 0.0
    token_flips: int = 0
    largest_flip: float = 0.0
    first: str = ""
    position_errors: list[float] = field(default_factory=list)
    _squared_error: float = 0.0
    _squared_reference: float = 0.0

    @property
    def exact(self) -> bool:
        """True if something was compared and all of it is finite and equal bit for bit."""
        return self.positions > 0 and self.finite and self.identical == self.positions

    @property
    def normalised_error(self) -> float:
        """Root of the summed squared error over the summed squared reference."""
        return float(np.sqrt(self._squared_error / self._squared_reference)) if self._squared_reference else 0.0

    def add(self, other: Agreement) -> None:
        """Count what `other` compared as well."""
        self.positions += other.positions
        self.identical += other.identical
        self.finite = self.finite and other.finite
        self.max_error = max(self.max_error, other.max_error)
        self.token_flips += other.token_flips
        self.largest_flip = max(self.largest_flip, other.largest_flip)
        self.first = self.first or other.first
        self.position_errors += other.position_errors
        self._squared_error += other._squared_error
        self._squared_reference += other._squared_reference

    def compare(self, reference: Logits, other: Logits, position: int) -> None:
        """Compare the logits of one decode that began at `position`; both are (n, n_vocab)."""
        self.positions += len(reference)
        if not (np.isfinite(reference).all() and np.isfinite(other).all()):
            self.finite = False
            self.first = self.first or f"logits at position {position} are not finite"
            return
        same = (reference.view(np.uint32) == other.view(np.uint32)).all(axis=1)
        self.identical += int(same.sum())
        # the sums are over everything, so that the error is that of the whole run
        reference64 = reference.astype(np.float64)
        self._squared_reference += float(np.square(reference64).sum())
        if same.all():
            self.position_errors += [0.0] * len(reference)
            return
        difference = np.abs(reference64 - other)
        self._squared_error += float(np.square(difference).sum())
        with np.errstate(over="ignore"):  # a difference from nothing is infinitely large
            norms = np.linalg.norm(difference, axis=1) / np.maximum(
                np.linalg.norm(reference64, axis=1), np.finfo(float).tiny
            )
        self.position_errors += norms.tolist()
        self.max_error = max(self.max_error, float(difference.max()))
        flips = np.flatnonzero(reference.argmax(axis=1) != other.argmax(axis=1))
        self.token_flips += len(flips)
        for row in map(int, flips):
            runner_up, leader = np.partition(reference64[row], -2)[-2:]
            lead = float((leader - runner_up) / max(reference64[row].std(), np.finfo(float).tiny))
            self.largest_flip = max(self.largest_flip, lead)
        if not self.first:
            row = int(np.flatnonzero(~same)[0])
            self.first = (
                f"first difference at position {position + row}: largest error {difference[row].max():.3g}, "
                f"greedy token {int(other[row].argmax())} instead of {int(reference[row].argmax())}"
            )


def frames_equal(reference: Frame, other: Frame) -> bool:
    """True if two frames hold the same tensors with the same bytes; two empty frames are not a comparison."""
    return (
        bool(reference)
        and len(reference) == len(other)
        and all(np.array_equal(ours, theirs) for ours, theirs in zip(reference, other, strict=True))
    )
