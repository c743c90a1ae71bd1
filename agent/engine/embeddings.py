"""What a decode may be given in place of token ids: vectors made elsewhere, each with a position of the model's own layout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Embeddings:
    """A block of embeddings: an image, for example, after its projector.

    Attributes:
        vectors: float32, (n, n_embd_inp). Wider than the hidden state where deepstack layers take their own part of a row.
        positions: int32, (axes, n), absolute: one row where rotation has one axis, four with M-RoPE (time, height, width
            and one more).
        span: positions that the block takes: what follows it begins at its own first position plus this.
        causal: a vector attends to those before it only; else to the whole block.
    """

    vectors: Vectors
    positions: Positions
    span: int
    causal: bool = True

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def position(self) -> int:
        """Of the first vector, on the axis of time."""
        return int(self.positions[0, 0])
