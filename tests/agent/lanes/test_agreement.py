"""How two runs are compared: to the bit, and with nothing counted that was not there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agent.lanes.agreement import Agreement, frames_equal

Logits = npt.NDArray[np.float32]

finite = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.integers(2, 8)), elements=st.floats(-1e3, 1e3, width=32)
)


def compared(reference: object, other: object) -> Agreement:
    """The agreement of two runs of one decode."""
    agreement = Agreement()
    agreement.compare(np.atleast_2d(np.array(reference, np.float32)), np.atleast_2d(np.array(other, np.float32)), 5)
    return agreement


def test_nothing_compared_is_not_exact() -> None:
    """E28: zero positions are no agreement."""
    assert not Agreement().exact
    empty = Agreement()
    empty.compare(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32), 0)
    assert not empty.exact


@given(finite)
def test_a_run_equals_itself(logits: Logits) -> None:
    """The same bits are exact, without error and without flips."""
    agreement = compared(logits, logits.copy())
    assert agreement.exact
    assert agreement.positions == agreement.identical == len(logits)
    assert (agreement.max_error, agreement.normalised_error, agreement.token_flips) == (0.0, 0.0, 0)
    assert agreement.position_errors == [0.0] * len(logits)
    assert agreement.first == ""


@given(finite, st.data())
def test_one_flipped_bit_is_not_exact(logits: Logits, data: st.DataObject) -> None:
    """Any bit of any value: the position is named, the others still count as identical."""
    row = data.draw(st.integers(0, logits.shape[0] - 1))
    column = data.draw(st.integers(0, logits.shape[1] - 1))
    bit = data.draw(st.integers(0, 31))
    other = logits.copy()
    other.view(np.uint32)[row, column] ^= np.uint32(1 << bit)
    agreement = compared(logits, other)
    assert not agreement.exact
    assert agreement.first
    if np.isfinite(other).all():
        assert agreement.identical == len(logits) - 1
        assert f"position {5 + row}" in agreement.first
    else:
        assert not agreement.finite


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_on_both_sides_is_not_exact(value: float) -> None:
    """E28: NaN equals NaN bit for bit and proves nothing."""
    agreement = compared([[1.0, value]], [[1.0, value]])
    assert not agreement.exact
    assert not agreement.finite
    assert "not finite" in agreement.first


@pytest.mark.parametrize(("reference", "other"), [([1, np.nan], [1, 2]), ([1, 2], [1, np.nan])])
def test_what_is_not_finite_on_one_side_is_not_exact(reference: list[float], other: list[float]) -> None:
    """Whichever side it is."""
    assert not compared(reference, other).exact


def test_later_sound_positions_do_not_heal_a_nan() -> None:
    """Once not finite, the run stays so."""
    agreement = compared([[np.nan, 1.0]], [[np.nan, 1.0]])
    agreement.compare(np.ones((3, 2), np.float32), np.ones((3, 2), np.float32), 6)
    assert not agreement.exact
    assert agreement.positions == 4


def test_minus_zero_is_not_zero() -> None:
    """Equal values with other bits are not bit-exact."""
    agreement = compared([[0.0, 1.0]], [[-0.0, 1.0]])
    assert not agreement.exact
    assert agreement.max_error == 0.0
    assert "position 5" in agreement.first


def test_a_flip_tells_how_far_the_token_led() -> None:
    """The lead that was lost is in standard deviations of the logits of its position; the largest one counts."""
    near = compared([[1.0, 1.001, 0.0]], [[1.001, 1.0, 0.0]])
    assert near.token_flips == 1
    assert near.largest_flip == pytest.approx(0.001 / np.std([1.0, 1.001, 0.0]), rel=1e-3)
    far = compared([[1.0, 1.001, 0.0], [3.0, 1.0, 0.0]], [[1.001, 1.0, 0.0], [1.0, 3.0, 0.0]])
    assert far.token_flips == 2
    assert far.largest_flip == pytest.approx(2.0 / np.std([3.0, 1.0, 0.0]), rel=1e-6)


@given(finite, finite)
def test_no_flip_no_lead(reference: Logits, other: Logits) -> None:
    """A lead is reported exactly where a token changed that led at all."""
    rows, columns = min(len(reference), len(other)), min(reference.shape[1], other.shape[1])
    left, right = reference[:rows, :columns].copy(), other[:rows, :columns].copy()
    agreement = compared(left, right)
    flips, leads = 0, [0.0]
    for mine, theirs in zip(left.astype(np.float64), right.astype(np.float64), strict=True):
        if mine.argmax() != theirs.argmax():
            flips += 1
            ordered = np.sort(mine)
            leads.append(float(ordered[-1] - ordered[-2]))
    assert agreement.token_flips == flips
    assert (agreement.largest_flip > 0) == (max(leads) > 0)
    assert agreement.max_error == np.abs(left.astype(np.float64) - right).max()


def test_errors_are_those_of_the_whole_run() -> None:
    """The normalised error is over all positions; each position has its own as well."""
    agreement = Agreement()
    agreement.compare(np.array([[3.0, 4.0]], np.float32), np.array([[3.0, 4.0]], np.float32), 0)
    agreement.compare(np.array([[3.0, 4.0]], np.float32), np.array([[3.0, 5.0]], np.float32), 1)
    assert agreement.position_errors == pytest.approx([0.0, 0.2])
    assert agreement.normalised_error == pytest.approx((1 / 50) ** 0.5)
    assert agreement.max_error == 1.0


def test_a_reference_of_zeros_is_compared_without_a_warning() -> None:
    """There is nothing to normalise by, and the difference is still seen."""
    agreement = compared([[0.0, 0.0]], [[1e30, 0.0]])
    assert not agreement.exact
    assert agreement.max_error == pytest.approx(1e30)
    assert agreement.normalised_error == 0.0


def frame(*tensors: bytes) -> tuple[npt.NDArray[np.uint8], ...]:
    """A frame of these tensors."""
    return tuple(np.frombuffer(tensor, dtype=np.uint8) for tensor in tensors)


@pytest.mark.parametrize(
    ("ours", "theirs", "equal"),
    [
        (frame(b"ab", b"c"), frame(b"ab", b"c"), True),
        (frame(b"ab", b"c"), frame(b"ab", b"d"), False),
        (frame(b"ab", b"c"), frame(b"ab"), False),
        (frame(b"ab"), frame(b"abc"), False),
        (frame(b"ab", b"c"), frame(b"c", b"ab"), False),
        (frame(), frame(), False),
    ],
)
def test_frames_are_equal_when_all_their_bytes_are(
    ours: tuple[npt.NDArray[np.uint8], ...], theirs: tuple[npt.NDArray[np.uint8], ...], equal: bool
) -> None:
    """Count, order, size and bytes; two empty frames are no comparison."""
    assert frames_equal(ours, theirs) is equal
