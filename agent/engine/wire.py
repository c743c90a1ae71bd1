"""The activation wire: what a boundary tensor looks like after it has crossed in f32, f16 or q8."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

F16_MAX = 65504.0


class WireType(StrEnum):
    """Type of the activations on the wire. q8 is ggml's Q8_0: blocks of 32 with one f16 scale."""

    F32 = "f32"
    F16 = "f16"
    Q8 = "q8"


@dataclass
class WireRange:
    """What has crossed a wire so far.

    Attributes:
        values: activations that crossed.
        peak: largest absolute value among them.
        beyond_f16: how many lie outside of the range of f16.
    """

    values: int = 0
    peak: float = 0.0
    beyond_f16: int = 0

    def see(self, values: Array) -> None:
        """Account for one tensor."""
        magnitude = np.abs(values)
        self.values += values.size
        if values.size:
            self.peak = max(self.peak, float(magnitude.max()))
            self.beyond_f16 += int(np.count_nonzero(magnitude > F16_MAX))


def carry(values: Array, wire: WireType) -> Array:
    """What arrives when `values` are sent over `wire`."""
    if wire is WireType.F32:
        return values
    if wire is WireType.F16:
        with np.errstate(over="ignore"):  # beyond the range of f16 a value becomes infinite: that is the finding
            return values.astype(np.float16).astype(np.float32)
    return _through_q8(values)


def _through_q8(values: Array) -> Array:
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    block = 32
    flat = values.reshape(-1)
    padded = np.zeros(-(-flat.size // block) * block, dtype=np.float32)
    padded[: flat.size] = flat
    with np.errstate(over="ignore", invalid="ignore"):
        packed = quantize(padded.reshape(-1, block), GGMLQuantizationType.Q8_0)
        unpacked: Array = dequantize(packed, GGMLQuantizationType.Q8_0)
    return unpacked.reshape(-1)[: flat.size].reshape(values.shape)
