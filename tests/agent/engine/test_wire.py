"""The activation wire: what arrives, and what is counted on the way."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agent.engine.wire import F16_MAX, WireRange, WireType, carry

Array = npt.NDArray[np.float32]


def arrays(limit: float) -> st.SearchStrategy[Array]:
    """Activations up to `limit`, also of sizes that are no multiple of a q8 block."""
    shapes = hnp.array_shapes(min_dims=1, max_dims=2, max_side=70)
    return hnp.arrays(np.float32, shapes, elements=st.floats(-limit, limit, width=32))


@given(hnp.arrays(np.uint32, hnp.array_shapes(max_dims=2, max_side=40)))
def test_f32_is_the_identity_for_every_bit_pattern(bits: npt.NDArray[np.uint32]) -> None:
    """NaN payloads, signed zeros and subnormals arrive as they were sent."""
    values = bits.view(np.float32)
    assert carry(values, WireType.F32).tobytes() == values.tobytes()


@given(arrays(F16_MAX))
def test_f16_rounds_to_the_nearest(values: Array) -> None:
    """Within its range, f16 is off by half a step at most: 2^-11 of the value, or 2^-25 near zero."""
    arrived = carry(values, WireType.F16)
    assert arrived.dtype == np.float32
    assert arrived.shape == values.shape
    error = np.abs(arrived.astype(np.float64) - values)
    assert (error <= np.maximum(np.abs(values.astype(np.float64)) * 2.0**-11, 2.0**-25)).all()


@given(arrays(float(np.float32(1e30))))
def test_f16_is_infinite_beyond_its_range_and_that_is_counted(values: Array) -> None:
    """What is larger than the largest f16 by half a step or more becomes infinite; nothing uncounted does."""
    seen = WireRange()
    seen.see(values)
    arrived = carry(values, WireType.F16)
    assert seen.beyond_f16 == np.count_nonzero(np.abs(values) > F16_MAX)
    assert seen.values == values.size
    assert seen.peak == np.abs(values).max(initial=0.0)
    assert not np.isinf(arrived[np.abs(values) <= F16_MAX]).any()
    assert np.isinf(arrived[np.abs(values) >= 65520]).all()


@given(arrays(1e6))
def test_q8_is_off_by_half_a_step_of_its_block(values: Array) -> None:
    """Blocks of 32 in the order of memory, 254 steps over the range of each, and a scale in f16."""
    arrived = carry(values, WireType.Q8)
    assert arrived.dtype == np.float32
    assert arrived.shape == values.shape
    flat, back = values.reshape(-1).astype(np.float64), arrived.reshape(-1)
    for start in range(0, flat.size, 32):
        block = flat[start : start + 32]
        peak = np.abs(block).max()
        step = peak / 127
        # rounding of the value, of the scale (2^-11 of it, over up to 127 steps), and of scales below f16's normal range
        bound = step * 0.5 + peak * 2.0**-11 + 128 * 2.0**-25
        assert (np.abs(block - back[start : start + 32]) <= bound).all()


@given(arrays(1e4))
def test_q8_is_stable(values: Array) -> None:
    """The same activations arrive as the same bits."""
    assert carry(values, WireType.Q8).tobytes() == carry(values, WireType.Q8).tobytes()


@pytest.mark.parametrize("wire", list(WireType))
def test_nothing_arrives_as_nothing(wire: WireType) -> None:
    """An empty tensor crosses every wire."""
    assert carry(np.zeros((0, 8), dtype=np.float32), wire).shape == (0, 8)


@pytest.mark.parametrize("wire", list(WireType))
def test_zeros_arrive_as_zeros(wire: WireType) -> None:
    """A block of zeros has no scale and is still exact."""
    assert not carry(np.zeros(65, dtype=np.float32), wire).any()


def test_the_types_differ() -> None:
    """A value that needs more bits than f16 and q8 have tells the three apart."""
    values = np.array([1.0001, 0.3337], dtype=np.float32)
    assert len({carry(values, wire).tobytes() for wire in WireType}) == 3


def test_the_range_adds_up_over_tensors() -> None:
    """Values are summed, the peak is that of all."""
    seen = WireRange()
    for values in ([1.0, -70000.0], [], [3.0]):
        seen.see(np.array(values, dtype=np.float32))
    assert (seen.values, seen.peak, seen.beyond_f16) == (3, 70000.0, 1)
