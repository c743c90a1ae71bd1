"""The plan: exactly the selected rows, each bound by digests, and nothing absent in silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixgen.battery import LANES
from matrixgen.errors import (
    NoRunnerFits,
    NothingSelected,
    PlanInvalid,
    UnknownBackend,
    UnknownEvent,
    UnknownFamily,
    UnknownSubject,
)
from matrixgen.manifest import Manifest, load_manifest
from matrixgen.plan import build_plan, plan_to_json, read_plan, write_plan

FIXED = Path(__file__).parent / "golden" / "manifests"
EVENTS = ("llama-bump", "nightly", "patch-edit", "pull-request", "radix-cache", "release", "manual-full")


def test_tier_1_of_a_bump(live: Manifest) -> None:
    """Every row of tier 1 has one leg on the CPU with its lanes, and the unpinned ones say so."""
    plan = build_plan(live, event="llama-bump", tiers=[1])
    rows = [family.family for family in live.families if family.tier == 1]
    assert [leg.id for leg in plan.legs] == [f"{name}@cpu" for name in sorted(rows)]
    assert all(leg.lanes for leg in plan.legs)
    assert {leg.family.family for leg in plan.legs if leg.subject == "twin"} == {s.family for s in plan.skipped}


@settings(max_examples=60, deadline=None)
@given(
    event=st.sampled_from(EVENTS),
    tiers=st.sets(st.sampled_from([1, 2, 3])),
    backends=st.sets(st.sampled_from(["cpu", "cuda", "metal"])),
    subject=st.sampled_from([None, "weights", "twin"]),
)
def test_legs_are_exactly_the_selected_rows(
    event: str, tiers: set[int], backends: set[str], subject: str | None
) -> None:
    """Rows of the tiers that the event has a battery for, once for each backend; nothing else, in stable order."""
    manifest = load_manifest(FIXED)
    if event == "pull-request":
        backends, subject = backends & {"cpu"}, "twin"
    plan = build_plan(
        manifest, event=event, tiers=sorted(tiers), backends=sorted(backends), subject=subject, allow_empty=True
    )
    batteries = manifest.batteries.events[event]
    expected = [
        f"{family.family}@{backend}"
        for family in sorted(manifest.families, key=lambda family: family.family)
        if family.tier is not None and family.tier in batteries and (not tiers or family.tier in tiers)
        for backend in sorted(backends or batteries[family.tier].backends)
    ]
    assert [leg.id for leg in plan.legs] == expected
    assert {leg.build_key for leg in plan.legs} == {build.key for build in plan.builds}
    for leg in plan.legs:
        assert (leg.subject == "weights") == bool(leg.files) == (leg.model_key is not None)
        if leg.subject == "weights":
            assert leg.family.unpinned is None
            assert subject != "twin"


def test_unpinned_rows_get_a_twin_and_a_reason(fixed: Manifest) -> None:
    """A row without a digest is never fetched; its twin leg runs and the plan says what is missing."""
    plan = build_plan(fixed, event="llama-bump", families=["mamba2"])
    assert [(leg.id, leg.subject, leg.files, leg.model_key) for leg in plan.legs] == [("mamba2@cpu", "twin", (), None)]
    assert [entry.family for entry in plan.skipped] == ["mamba2"]
    assert "not pinned" in plan.skipped[0].reason


def test_package_rows_are_never_fetched_whole(fixed: Manifest) -> None:
    """A package row has no weights leg, asked for or not."""
    plan = build_plan(fixed, event="release", families=["deepseek3", "exaone-moe"], subject="weights")
    assert {leg.subject for leg in plan.legs} == {"twin"}
    assert {entry.family for entry in plan.skipped} == {"deepseek3", "exaone-moe"}
    assert all("never fetched whole" in entry.reason for entry in plan.skipped)


def test_tombstones_owe_refusal_only(fixed: Manifest) -> None:
    """Tier 3 gives one leg a row, with the lane refuse and no file."""
    plan = build_plan(fixed, event="llama-bump", tiers=[3], subject="weights")
    assert [leg.family.family for leg in plan.legs] == ["chatglm", "gpt2", "starcoder2"]
    assert {tuple(lane.name for lane in leg.lanes) for leg in plan.legs} == {("refuse",)}
    assert {leg.files for leg in plan.legs} == {()}


@pytest.mark.parametrize(
    ("name", "owed", "not_owed"),
    [
        ("qwen3-dense", "cache-resident", "cache-recurrent"),
        ("qwen3vlmoe", "cache-resident", "cache-recurrent"),
        ("deepseek3", "cache-resident", "cache-recurrent"),
        ("mamba", "cache-recurrent", "cache-resident"),
        ("kimi-linear", "cache-recurrent", "cache-resident"),
    ],
)
def test_cache_lane_follows_shape(fixed: Manifest, name: str, owed: str, not_owed: str) -> None:
    """Recurrent state needs the recurrent cache lane, and the reverse."""
    (leg,) = build_plan(fixed, event="llama-bump", families=[name]).legs
    names = [lane.name for lane in leg.lanes]
    assert owed in names
    assert not_owed not in names


@pytest.mark.parametrize("event", ["llama-bump", "patch-edit", "pull-request", "release", "manual-full"])
def test_full_batteries_sweep_every_cut(live: Manifest, event: str) -> None:
    """F10: every family of tier 1 that can be split owes all of its legal cuts, first, middle and last ones among them."""
    legs = build_plan(live, event=event, tiers=[1]).legs
    swept = {leg.id: lane.params["cuts"] for leg in legs for lane in leg.lanes if lane.name == "boundary-sweep"}
    assert swept == {leg.id: "all" for leg in legs if leg.family.shape != "encoder"}
    assert swept


def test_encoders_owe_inspection_only(live: Manifest) -> None:
    """An encoder has no causal split: inspect and cache-policy, whatever the battery."""
    for tiers in live.batteries.events.values():
        for tier, battery in tiers.items():
            names = {lane.name for lane in live.batteries.lanes_for(battery, "encoder")}
            assert names <= ({"refuse"} if tier == 3 else {"inspect", "cache-policy"})


def test_lane_parameters_are_complete(fixed: Manifest) -> None:
    """A leg carries every parameter: the default, or what the battery says instead."""
    plan = build_plan(fixed, event="manual-full", families=["mamba"], backends=["cpu"])
    lanes = {lane.name: lane.params for lane in plan.legs[0].lanes}
    assert lanes["determinism"]["repeats"] == 5
    assert lanes["determinism"]["threads"] == [1, 2, 3, 4]
    assert lanes["boundary-sweep"]["cuts"] == "all"
    assert lanes["state-handoff"] == {"prefix_tokens": 24, "suffix_tokens": 9, "micro_batch": 16, "decode_steps": 8}
    assert set(lanes) <= set(LANES)


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_has_a_battery(live: Manifest, event: str) -> None:
    """Each event of the design plans something."""
    assert build_plan(live, event=event).legs


def test_pull_requests_never_reach_a_lab(live: Manifest) -> None:
    """A32: code of a fork runs on hosted machines and on twins."""
    plan = build_plan(live, event="pull-request")
    hosted = {runner.name for runner in live.runners if not runner.self_hosted}
    assert {leg.runner for leg in plan.legs} <= hosted
    assert {build.runner for build in plan.builds} <= hosted
    assert {leg.subject for leg in plan.legs} == {"twin"}
    with pytest.raises(NoRunnerFits, match="untrusted"):
        build_plan(live, event="pull-request", backends=["cuda"])


def test_weights_forced_on_a_pull_request_do_not_reach_a_lab(live: Manifest) -> None:
    """Even when weights are asked for, a file too large for a hosted machine is an error, not a self-hosted label."""
    with pytest.raises(NoRunnerFits, match="GiB"):
        build_plan(live, event="pull-request", families=["qwen3next"], subject="weights")


def test_globs_and_names_select(fixed: Manifest) -> None:
    """Several patterns add up; each must match something."""
    plan = build_plan(fixed, event="llama-bump", families=["mamba*", "gpt2"])
    assert [leg.family.family for leg in plan.legs] == ["gpt2", "mamba", "mamba2"]
    with pytest.raises(UnknownFamily):
        build_plan(fixed, event="llama-bump", families=["mamba", "nothing-*"])


@pytest.mark.parametrize(
    ("typed", "nearest"), [("mamab", "mamba"), ("Kimi_Linear", "kimi-linear"), ("qwen3_dense", "qwen3-dense")]
)
def test_unknown_family_names_the_nearest(fixed: Manifest, typed: str, nearest: str) -> None:
    """A typing error is answered with what was probably meant."""
    for call in (lambda: fixed.family(typed), lambda: build_plan(fixed, event="llama-bump", families=[typed])):
        with pytest.raises(UnknownFamily) as caught:
            call()
        assert caught.value.nearest[0] == nearest
        assert nearest in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"event": "bump"}, UnknownEvent),
        ({"event": "nightly", "backends": ["tpu"]}, UnknownBackend),
        ({"event": "nightly", "subject": "gguf"}, UnknownSubject),
        ({"event": "nightly", "tiers": [2]}, NothingSelected),
        ({"event": "llama-bump", "tiers": [9]}, NothingSelected),
        ({"event": "llama-bump", "families": ["gemma"]}, NothingSelected),
    ],
)
def test_wrong_words_are_named(fixed: Manifest, arguments: dict[str, Any], error: type[Exception]) -> None:
    """A5: nothing selected is an error of its own; so is each unknown word."""
    with pytest.raises(error):
        build_plan(fixed, **arguments)


def test_empty_plan_when_asked(fixed: Manifest) -> None:
    """With allow_empty the plan is empty and says why."""
    plan = build_plan(fixed, event="llama-bump", families=["gemma"], allow_empty=True)
    assert not plan.legs
    assert not plan.builds
    assert [entry.reason.split(";")[0] for entry in plan.skipped] == ["in no tier"]


def test_moving_one_family_changes_only_its_legs(fixed: Manifest) -> None:
    """A9: ids are stable; other legs stay what they were."""
    before = {leg.id: leg for leg in build_plan(fixed, event="release").legs}
    moved = tuple(family._replace(tier=2) if family.family == "mamba" else family for family in fixed.families)
    after = {leg.id: leg for leg in build_plan(fixed._replace(families=moved), event="release").legs}
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed
    assert {key.split("@")[0] for key in changed} == {"mamba"}


def test_plan_file_round_trip(fixed: Manifest, tmp_path: Path) -> None:
    """What is read is what was written, with the same digest and the same bytes each time."""
    plan = build_plan(fixed, event="release")
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    first = path.read_bytes()
    again = read_plan(path)
    assert again == plan
    assert again.digest == plan_to_json(plan)["digest"]
    write_plan(again, path)
    assert path.read_bytes() == first


def test_digest_ignores_the_order_of_manifest_rows(fixed: Manifest) -> None:
    """The plan is sorted, so rows in another order give the same plan."""
    shuffled = fixed._replace(families=tuple(reversed(fixed.families)))
    assert build_plan(shuffled, event="release").digest == build_plan(fixed, event="release").digest


def _other_event(data: Any) -> None:
    data["event"] = "nightly"


def _drop_leg(data: Any) -> None:
    data["legs"].pop()


def _more_time(data: Any) -> None:
    data["legs"][0]["timeout_minutes"] += 1


def _unknown_key(data: Any) -> None:
    data["note"] = "x"


def _no_digest(data: Any) -> None:
    del data["digest"]


def _comma_key(data: Any) -> None:
    data["legs"][0]["build_key"] = "a,b"


@pytest.mark.parametrize("change", [_other_event, _drop_leg, _more_time, _unknown_key, _no_digest, _comma_key])
def test_changed_plans_are_refused(fixed: Manifest, tmp_path: Path, change: Callable[[Any], None]) -> None:
    """A plan that is not what was written is refused, by schema or by digest."""
    data = plan_to_json(build_plan(fixed, event="llama-bump"))
    change(data)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(PlanInvalid, match="plan"):
        read_plan(path)


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"a": 1, "a": 2}', "[" * 10_000, "\x00"])
def test_files_that_are_no_plan_are_refused(tmp_path: Path, text: str) -> None:
    """Anything else than a plan is PlanInvalid, with the next step."""
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlanInvalid, match="matrixgen plan"):
        read_plan(path)


def test_missing_plan_and_folder_are_refused(tmp_path: Path) -> None:
    """A path without a file is PlanInvalid too."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(PlanInvalid):
            read_plan(path)


def test_leg_lookup_names_the_nearest(fixed: Manifest) -> None:
    """An unknown leg id is answered with those that are near."""
    plan = build_plan(fixed, event="llama-bump", tiers=[1])
    assert plan.leg("mamba@cpu").family.family == "mamba"
    with pytest.raises(UnknownFamily, match="mamba@cpu"):
        plan.leg("mamba@cuda")


def test_timeouts_grow_with_the_weights(live: Manifest) -> None:
    """A larger file gets more time, and no hosted leg more than GitHub allows."""
    legs = {leg.family.family: leg for leg in build_plan(live, event="llama-bump", tiers=[1]).legs}
    assert legs["qwen3moe"].timeout_minutes > legs["mamba"].timeout_minutes > 0
    assert all(leg.timeout_minutes <= 360 for leg in legs.values() if leg.runner.startswith("hosted"))
