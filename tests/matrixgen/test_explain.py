"""`explain`, and families that a person names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.errors import NothingSelected
from matrixgen.manifest import Manifest
from matrixgen.plan import build_plan

Run = Callable[..., Any]


def test_explain_says_what_decided(run: Run, live: Manifest) -> None:
    """Line, tier, reason, pin, machines, and each event with its legs and lanes."""
    result = run("explain", "qwen3next")
    assert result.code == 0
    first = result.out.splitlines()[0]
    line = int(first.rpartition(":")[2].rstrip(")"))
    text = (live.root / "families.json").read_text(encoding="utf-8").splitlines()[line - 1]
    assert '"family": "qwen3next"' in text
    for word in (
        "full battery",
        "hybrid",
        "GiB of memory",
        "fits",
        "cache-recurrent",
        "not owed by shape hybrid",
    ):
        assert word in result.out
    heads = [line for line in result.out.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    told = [event for head in heads for event in head.strip().split(", ") if event in live.batteries.events]
    assert sorted(told) == sorted(live.batteries.events)
    keys = [line for line in result.out.splitlines() if line.endswith("~")]
    assert len(keys) == len(set(keys)) > 1
    assert "hosted machines only" in result.out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt2", "it must be refused"),
        ("gemma", "only manual-full plans it"),
        ("deepseek3", "package row"),
        ("mamba2", "not pinned"),
        ("bert", "no battery for tier none"),
    ],
)
def test_explain_every_kind_of_row(run: Run, name: str, words: str) -> None:
    """Tombstone, no tier, package, not pinned, encoder."""
    result = run("explain", name)
    assert result.code == 0
    assert words in result.out


def test_rows_of_all_kinds_can_be_explained(run: Run, live: Manifest) -> None:
    """No kind of row is beyond explanation."""
    for family in live.families[::23]:
        assert run("explain", family.family).code == 0


def test_unknown_families_are_named(run: Run) -> None:
    """The nearest names are given."""
    result = run("explain", "mamab")
    assert result.code == 2
    assert "mamba" in result.err


def test_a_family_in_no_tier_runs_by_its_name(live: Manifest) -> None:
    """By hand and in full: the battery of tier 1. Not by glob, and not for another event."""
    plan = build_plan(live, event="manual-full", families=["gemma3-270m"], backends=["cpu"])
    names = {lane.name for lane in plan.legs[0].lanes}
    assert {"single-step", "boundary-sweep", "determinism"} <= names
    for event, name in (("manual-full", "gemma3-270*"), ("llama-bump", "gemma3-270m"), ("nightly", "gemma3-270m")):
        with pytest.raises(NothingSelected):
            build_plan(live, event=event, families=[name])


@pytest.mark.parametrize("name", ["delta-net-base", "clip", "eagle3", "dflash", "gemma4-assistant"])
def test_what_is_no_model_of_its_own_never_runs(run: Run, live: Manifest, name: str) -> None:
    """F3: a helper without an architecture, a projector and a draft model are no legs, even when they are named."""
    assert not live.family(name).standalone
    with pytest.raises(NothingSelected, match="never a leg of its own"):
        build_plan(live, event="manual-full", families=[name])
    assert "never a leg of its own" in run("explain", name).out


def test_who_brings_the_file_need_not_pin_it(live: Manifest) -> None:
    """By hand, named, with the subject weights: a leg on weights without files. Every other way gives a twin."""
    name = "gemma3-270m"
    assert live.family(name).unpinned
    leg = build_plan(live, event="manual-full", families=[name], backends=["cpu"], subject="weights").legs[0]
    assert (leg.subject, leg.files, leg.model_key) == ("weights", (), None)
    leg = build_plan(live, event="manual-full", families=[name], backends=["cpu"]).legs[0]
    assert leg.subject == "twin"
    leg = build_plan(live, event="llama-bump", families=["mamba2"], subject="weights").legs[0]
    assert leg.subject == "twin"


def test_lanes_say_how_much_they_owe(live: Manifest) -> None:
    """Every lane of every leg has its least number of comparisons, and more where its parameters ask for more."""
    plan = build_plan(live, event="llama-bump", tiers=[1])
    least = {lane.name: lane.min_comparisons for lane in plan.legs[0].lanes}
    assert all(lane.min_comparisons >= 1 for leg in plan.legs for lane in leg.lanes)
    assert least["single-step"] == 48
    assert least["dtype-matrix"] == 3 * 48
    assert least["determinism"] > least["single-step"]


def test_plan_holds_no_path_of_this_machine(run: Run, tmp_path: Path) -> None:
    """A plan is the same wherever it is made."""
    here = run("plan", "--event", "release").out
    assert str(Path.cwd()) not in here
    assert str(tmp_path) not in here
