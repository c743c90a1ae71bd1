"""Which cuts are run: every class is met, and never an illegal cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.engine.contract import Contract
from agent.errors import AgentError
from agent.header.layers import period
from agent.lanes.cuts import class_cuts, middle_cut, nearest, single_kind_stages, third_cuts
from agent.layer_kind import LayerKind
from tests.agent.lanes.kit import A, B, N, R, contract, contracts


@given(contracts())
def test_class_cuts_are_legal_sorted_and_hold_both_ends(made: Contract) -> None:
    """The first and the last legal cut are always there; nothing illegal is, and nothing twice."""
    cuts = class_cuts(made)
    assert set(cuts) <= set(made.legal_cuts)
    assert {made.legal_cuts[0], made.legal_cuts[-1]} <= set(cuts)
    assert list(cuts) == sorted(set(cuts))


@given(contracts())
def test_class_cuts_meet_every_offset_of_the_period(made: Contract) -> None:
    """Where layers interleave with a period, each offset at which a legal cut exists is met."""
    interval = period(made.state)
    if interval:
        met = {cut % interval for cut in class_cuts(made)}
        assert met == {cut % interval for cut in made.legal_cuts}


@given(contracts())
def test_class_cuts_meet_every_class(made: Contract) -> None:
    """Kinds around the cut, kinds on either side, and how much crosses: each combination that exists is met."""

    def facts(cut: int) -> tuple[object, ...]:
        before, after = made.state[:cut], made.state[cut:]
        return before[-1], after[0], frozenset(before), frozenset(after), len(made.cut(cut).frontier)

    assert {facts(cut) for cut in class_cuts(made)} == {facts(cut) for cut in made.legal_cuts}


@given(contracts())
def test_class_cuts_hold_an_attention_first_stage_where_there_is_one(made: Contract) -> None:
    """The shape of bug B1: a second stage that begins without recurrent state and holds some later."""

    def attention_first(cut: int) -> bool:
        after = made.state[cut:]
        return not after[0].recurrent and any(kind.recurrent for kind in after)

    assert any(map(attention_first, class_cuts(made))) == any(map(attention_first, made.legal_cuts))


def test_class_cuts_are_few_where_layers_are_alike() -> None:
    """Eighty layers of one kind need two cuts, not seventy-nine."""
    assert class_cuts(contract([A] * 80)) == (1, 79)


def test_no_cuts_where_none_is_legal() -> None:
    """A model that cannot be cut has no classes."""
    assert class_cuts(contract([A] * 4, illegal={1, 2, 3})) == ()


@given(contracts())
def test_the_middle_cut_is_the_legal_one_nearest_to_the_middle(made: Contract) -> None:
    """No legal cut is nearer, and of two the lower one is taken."""
    cut, half = middle_cut(made), made.n_layer / 2
    assert cut in made.legal_cuts
    assert min(made.legal_cuts, key=lambda other: (abs(other - half), other)) == cut


@given(contracts(), st.floats(0, 40))
def test_the_nearest_cut_is_legal_and_nearest(made: Contract, place: float) -> None:
    """For any place at all."""
    cut = nearest(made, place)
    assert cut in made.legal_cuts
    assert all(abs(cut - place) <= abs(other - place) for other in made.legal_cuts)


def test_a_model_that_cannot_be_cut_has_a_named_error() -> None:
    """Where no cut is legal, asking for one is an error of the model with words, not a fault of the program."""
    with pytest.raises(AgentError, match="no cut is legal"):
        middle_cut(contract([A] * 4, illegal={1, 2, 3}))


@given(contracts())
def test_three_stages_are_made_wherever_two_cuts_are_legal(made: Contract) -> None:
    """Two cuts in order, both legal; none where there is one legal cut only."""
    cuts = third_cuts(made)
    if len(made.legal_cuts) < 2:
        assert cuts is None
        return
    assert cuts is not None
    first, second = cuts
    assert first < second
    assert {first, second} <= set(made.legal_cuts)


@pytest.mark.parametrize(
    ("n_layer", "illegal", "cuts"),
    [
        (9, (), (3, 6)),
        (8, (), (3, 5)),
        (3, (), (1, 2)),
        (9, {3}, (2, 6)),
        (9, {3, 4, 5, 6, 7, 8}, (1, 2)),
        (12, {1, 2, 3, 4, 5, 6, 7, 8}, (9, 10)),
    ],
)
def test_the_three_stages_are_of_like_size(n_layer: int, illegal: set[int], cuts: tuple[int, int]) -> None:
    """The cuts are those nearest to the thirds."""
    assert third_cuts(contract([A] * n_layer, illegal)) == cuts


@given(contracts())
def test_stages_of_one_kind_hold_that_kind_alone(made: Contract) -> None:
    """Each is one layer between two legal cuts; there is one for each of the two kinds that has such a layer."""
    stages = single_kind_stages(made)
    mixed = len(set(made.state)) > 1
    for kind in (LayerKind.RECURRENT, LayerKind.ATTENTION):
        exists = any(
            made.state[start] is kind and {start, start + 1} <= set(made.legal_cuts) for start in made.legal_cuts
        )
        found = [(start, end) for start, end in stages if made.state[start] is kind]
        assert len(found) == (exists and mixed)
        for start, end in found:
            assert set(made.state[start:end]) == {kind}
            assert {start, end} <= set(made.legal_cuts)
    assert len(stages) <= 2


@pytest.mark.parametrize("kinds", [[A] * 8, [R] * 8, [B] * 8, [N] * 8])
def test_a_model_of_one_kind_needs_no_stage_of_one_kind(kinds: list[LayerKind]) -> None:
    """Every stage of it is one already."""
    assert single_kind_stages(contract(kinds)) == ()


def test_the_stages_of_a_hybrid() -> None:
    """Of a pattern with period four, the first layer of each kind that lies between legal cuts."""
    assert single_kind_stages(contract([R, R, R, A] * 2)) == ((1, 2), (3, 4))
