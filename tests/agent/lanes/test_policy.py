"""The cache policy follows from every layer of a range."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lanes.policy import CachePolicy, select_policy
from agent.layer_kind import LayerKind

A, R, B, N, U = (
    LayerKind.ATTENTION,
    LayerKind.RECURRENT,
    LayerKind.BOTH,
    LayerKind.NEITHER,
    LayerKind.UNKNOWN,
)


@given(st.lists(st.sampled_from(list(LayerKind)), max_size=20))
def test_the_policy_follows_from_what_is_there_at_all(kinds: list[LayerKind]) -> None:
    """Unknown disables, recurrent anywhere needs both payloads, attention alone is resident, nothing is nothing."""
    if not kinds or U in kinds:
        expected = CachePolicy.DISABLED
    elif R in kinds or B in kinds:
        expected = CachePolicy.KV_RECURRENT
    elif A in kinds:
        expected = CachePolicy.RESIDENT_KV
    else:
        expected = CachePolicy.DISABLED
    assert select_policy(kinds) is expected


@given(st.lists(st.sampled_from([A, R, B, N]), min_size=1, max_size=20), st.randoms())
def test_the_order_of_layers_does_not_matter(kinds: list[LayerKind], random: object) -> None:
    """B1: a layer that comes later counts as much as the first one."""
    shuffled = list(kinds)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert select_policy(kinds) is select_policy(shuffled)


@pytest.mark.parametrize(("first", "second"), list(product([A, N], [R, B])))
def test_an_attention_first_range_with_recurrent_state_is_never_resident(first: LayerKind, second: LayerKind) -> None:
    """The shape of bug B1, by name."""
    assert select_policy([first, second]) is CachePolicy.KV_RECURRENT


@pytest.mark.parametrize("others", [[], [A], [R], [B, A, N]])
def test_one_unknown_layer_disables_reuse(others: list[LayerKind]) -> None:
    """F11: a third kind of state is never restored in part."""
    assert select_policy([*others, U]) is CachePolicy.DISABLED
    assert select_policy([U, *others]) is CachePolicy.DISABLED
