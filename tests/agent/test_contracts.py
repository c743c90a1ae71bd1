"""Recorded contracts: what is kept of a contract, and the file that holds them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.contracts import Answer, RecordedContract, describe, load_contracts, write_contracts
from agent.engine.contract import Contract, Crossing, Cut
from agent.errors import ContractsInvalid
from agent.layer_kind import LayerKind
from agent.twin.catalog import FAMILY_RECIPES, RECIPES
from matrixgen.manifest import Manifest
from tests.agent.conftest import SMALL, Subjects
from tests.agent.lanes.kit import A, R, contract


def test_a_hidden_state_is_recorded_for_any_depth() -> None:
    """The layer is written relative to the cut, so that models of other depths have the same record."""
    shallow, deep = describe(contract([A] * 4)), describe(contract([A] * 30))
    assert shallow == deep
    assert shallow == RecordedContract(frontier=("t0-{k-1}",), tokens=False, caches=("k",), shared_state=False)


def test_a_tensor_that_crosses_several_cuts_keeps_its_layer() -> None:
    """The sideband of one layer is not one of every layer."""
    side = Crossing("side-0", 0, "f32", 4)
    cuts = tuple(Cut(k, (Crossing(f"l_out-{k - 1}", k - 1, "f32", 8), side), False, ()) for k in (1, 2, 3))
    made = Contract(state=(A,) * 4, caches=(("k",),) * 4, cuts=cuts)
    assert describe(made).frontier == ("l_out-{k-1}", "side-0")


def test_the_words_after_a_layer_are_kept() -> None:
    """A copy of what a layer made crosses, twice at one cut: relative to the cut like any other."""
    cuts = tuple(Cut(k, (Crossing(f"l_out-{k - 1} (copy)", k - 1, "f32", 8),) * 2, False, ()) for k in (1, 2, 3))
    made = Contract(state=(A,) * 4, caches=(("k",),) * 4, cuts=cuts)
    assert describe(made).frontier == ("l_out-{k-1} (copy)",)


def test_illegal_cuts_and_token_ids_are_recorded() -> None:
    """What forbids cuts, and text that crosses, are facts of the record; illegal cuts add nothing to the frontier."""
    cuts = (
        Cut(1, (Crossing("l_out-0", 0, "f32", 8),), True, ()),
        Cut(2, (Crossing("odd-1", 1, "f32", 8),), False, ("cache_k_l0",)),
    )
    made = Contract(state=(A, R, LayerKind.NEITHER), caches=(("k", "v"), ("r",), ()), cuts=cuts)
    recorded = describe(made)
    assert recorded.frontier == ("l_out-{k-1}",)
    assert recorded.tokens
    assert recorded.shared_state
    assert recorded.caches == ("k+v", "none", "r")


@pytest.mark.parametrize("family", SMALL)
def test_the_record_of_this_repository_is_that_of_its_pin(subjects: Subjects, family: str) -> None:
    """What crosses now is what was recorded."""
    subject = subjects(family)
    recorded = subject.expectations.recorded
    assert recorded is not None
    assert replace(recorded, answers={}) == describe(subject.contract)


def test_every_tier_1_architecture_is_recorded(manifest: Manifest) -> None:
    """Otherwise the lane `contract` has nothing to compare with."""
    recorded = load_contracts(manifest.root)
    tier_1 = {family.arch for family in manifest.families if family.tier == 1}
    assert tier_1 <= set(recorded)
    assert set(recorded) <= set(RECIPES)


def test_every_twin_has_a_recorded_answer(manifest: Manifest) -> None:
    """And no other: a recipe that was changed has another name, and its old answer says nothing."""
    twins: dict[str, set[str]] = {}
    for recipe in (*RECIPES.values(), *FAMILY_RECIPES.values()):
        twins.setdefault(recipe.architecture, set()).add(recipe.name)
    assert {name: set(contract.answers) for name, contract in load_contracts(manifest.root).items()} == twins


RECORD = RecordedContract(
    frontier=("l_out-{k-1}", "x@0"),
    tokens=True,
    caches=("k+v",),
    shared_state=True,
    answers={"0123456789ab": Answer(tokens=(3, 4), logits=(-0.5, 1.25))},
)


def test_contracts_survive_their_file(tmp_path: Path) -> None:
    """One architecture a line, sorted, whatever the order was."""
    other = RecordedContract(frontier=(), tokens=False, caches=(), shared_state=False)
    write_contracts(tmp_path, {"b": RECORD, "a": other})
    assert load_contracts(tmp_path) == {"a": other, "b": RECORD}
    text = (tmp_path / "contracts.json").read_text(encoding="utf-8").splitlines()
    assert [line[:3] for line in text] == ["{", '"a"', '"b"', "}"]
    write_contracts(tmp_path, {"a": other, "b": RECORD})
    assert (tmp_path / "contracts.json").read_text(encoding="utf-8").splitlines() == text
    assert [path.name for path in tmp_path.iterdir()] == ["contracts.json"]


def test_no_file_is_no_contracts(tmp_path: Path) -> None:
    """A manifest folder without a record is allowed; the lane says that nothing is recorded."""
    assert load_contracts(tmp_path) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b'{"qwen3": []}',
        b'{"qwen3": {"frontier": ["x"]}}',
        b'{"qwen3": {"frontier": 3, "tokens": false, "caches": [], "shared_state": false}}',
        b'{"a": {"frontier": [], "tokens": false, "caches": [], "shared_state": false, "answers": []}}',
        b'{"a": {"frontier": [], "tokens": false, "caches": [], "shared_state": false, "answers": {"x": {"tokens": [1]}}}}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    """With its path and what to do."""
    (tmp_path / "contracts.json").write_bytes(content)
    with pytest.raises(ContractsInvalid, match=r"contracts\.json"):
        load_contracts(tmp_path)
