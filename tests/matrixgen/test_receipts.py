"""Receipts as input: measured times, legs that are missing, the age of the last verdict."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.battery import LaneSpec
from matrixgen.cli.freshness import require_fresh
from matrixgen.cost import START, estimate, lane_seconds, tokens_of
from matrixgen.errors import InvalidValue, NotFresh, NothingSelected
from matrixgen.manifest import Manifest
from matrixgen.plan import build_plan
from matrixgen.receipts import passed_legs, read_receipts, timings_of
from matrixgen.report_costs import compare, costs_table
from tests.matrixgen.kit import TIMES, measured, write_receipt

Run = Callable[..., Any]


def test_times_of_receipts_are_used(fixed: Manifest, tmp_path: Path) -> None:
    """A leg that was measured in all its lanes is estimated by them; one that was measured in some is mixed."""
    owed = [lane.name for lane in build_plan(fixed, event="pull-request", families=["mamba"]).legs[0].lanes]
    write_receipt(tmp_path, "mamba@cpu", dict.fromkeys(owed, 10.0))
    write_receipt(tmp_path, "mamba2@cpu", {"inspect": 10.0})
    receipts, wrong = read_receipts(tmp_path)
    assert wrong == []
    plan = build_plan(fixed, event="pull-request", tiers=[1], timings=timings_of(receipts))
    legs = {leg.id: leg.estimate for leg in plan.legs}
    assert legs["mamba@cpu"] == (round(START + 10 * len(owed)), "measured")
    assert legs["mamba2@cpu"].source == "mixed"
    assert legs["jamba@cpu" if "jamba@cpu" in legs else "kimi-linear@cpu"].source == "model"


@pytest.mark.parametrize("event", ["llama-bump", "nightly", "radix-cache", "release", "manual-full"])
def test_no_leg_is_stopped_before_it_is_expected_to_end(live: Manifest, event: str) -> None:
    """The model can raise a time-out and never lowers one: it is the battery's, or the estimate, up to GitHub's limit."""
    by_tier = live.batteries.events[event]
    for leg in build_plan(live, event=event).legs:
        assert leg.family.tier is not None
        battery = by_tier[leg.family.tier].timeout.minutes(leg.size)
        expected = -(-leg.estimate.seconds // 60)
        hosted = "self-hosted" not in leg.runs_on
        assert leg.timeout_minutes == min(max(battery, expected), 360 if hosted else 7200), leg.id


def test_a_measured_leg_gets_twice_its_time(fixed: Manifest, tmp_path: Path) -> None:
    """What was measured in all its lanes raises its time-out to twice that, up to GitHub's limit."""
    plain = build_plan(fixed, event="nightly", families=["mamba"], backends=["cpu"]).legs[0]
    for seconds, minutes in ((1.0, plain.timeout_minutes), (3000.0, 201), (1e6, 360)):
        write_receipt(tmp_path, "mamba@cpu", {"inspect": seconds, "determinism": seconds}, subject={"kind": "weights"})
        timings = timings_of(read_receipts(tmp_path)[0])
        leg = build_plan(fixed, event="nightly", families=["mamba"], backends=["cpu"], timings=timings).legs[0]
        assert leg.timeout_minutes == minutes


def test_median_of_passed_lanes(tmp_path: Path) -> None:
    """The time of a lane that failed says nothing, since it may have stopped early."""
    for number, seconds in enumerate((1.0, 9.0, 2.0)):
        write_receipt(tmp_path / str(number), "a@cpu", {"chain": seconds})
    failed = [{"lane": "chain", "status": "fail", "seconds": 100.0}]
    write_receipt(tmp_path / "x", "a@cpu", {}, lanes=failed, status="fail")
    assert timings_of(read_receipts(tmp_path)[0]) == {("a@cpu", "twin", "chain"): 2.0}


def test_the_cost_model_is_near_what_was_measured(live: Manifest, tmp_path: Path) -> None:
    """The stated factor holds over recorded receipts of every tier 1 twin and of one file of weights."""
    count = measured(tmp_path)
    receipts, wrong = read_receipts(tmp_path)
    assert (len(receipts), wrong) == (count, [])
    for receipt in receipts:
        if receipt.subject == "twin":
            compared = compare(live, receipt)
            assert compared is not None
            assert 0.5 < compared[1] / compared[0] < 4, receipt.leg
    table = costs_table(live, receipts)
    assert table.count("@cpu") == count
    assert "median" in table


def test_the_model_on_weights_is_near_too(live: Manifest) -> None:
    """Gemma 3 270M: the sum over its lanes is within a factor of four."""
    entry = next(entry for entry in json.loads(TIMES.read_text(encoding="utf-8")) if entry["subject"] == "weights")
    specs = [LaneSpec(name, live.batteries.defaults[name]) for name in entry["lanes"]]
    modelled = sum(lane_seconds(spec, size=entry["size"], backend="cpu") for spec in specs)
    assert 0.25 < modelled / sum(entry["lanes"].values()) < 4


def test_every_lane_has_a_cost(live: Manifest) -> None:
    """No lane of the batteries falls to the guess for unknown ones, and unknown ones still cost something."""
    for tiers in live.batteries.events.values():
        for battery in tiers.values():
            for shape in ("dense", "hybrid", "encoder"):
                for lane in live.batteries.lanes_for(battery, shape):
                    assert tokens_of(lane, twin=True) != tokens_of(LaneSpec("new", {}), twin=True), lane.name
    assert estimate("a@b", [LaneSpec("new", {})], subject="twin", size=0, backend="b", timings={}).seconds > START


def test_costs_of_nothing(run: Run, tmp_path: Path) -> None:
    """A folder without a receipt is an error of its own."""
    result = run("costs", "--timings", str(tmp_path))
    assert result.code == NothingSelected.exit_code
    assert run("costs", "--timings", str(tmp_path / "none")).code == 2


@pytest.mark.parametrize(
    "text",
    ["", "{}", "null", "[]", "{", "[" * 10_000, '{"digest": "x"}', '{"digest": NaN}', "\udcff"],
)
def test_files_that_are_no_receipts_count_for_nothing(tmp_path: Path, text: str) -> None:
    """Each is told by its path, and the others are still read."""
    write_receipt(tmp_path / "a", "mamba@cpu", {"chain": 1.0})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "receipt.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    receipts, wrong = read_receipts(tmp_path)
    assert len(receipts) == 1
    assert len(wrong) == 1
    assert "receipt.json" in wrong[0]


@pytest.mark.parametrize("change", [{"status": "fail"}, {"leg": "mamba2@cpu"}, {"lanes": []}, {"digest": "sha256:0"}])
def test_changed_receipts_count_for_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    """A receipt that was edited does not have its digest any more."""
    path = write_receipt(tmp_path, "mamba@cpu", {"chain": 1.0})
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    assert read_receipts(tmp_path)[0] == []


@pytest.mark.parametrize("seconds", [-1.0, float(10**9)])
def test_impossible_times_are_refused(tmp_path: Path, seconds: float) -> None:
    """A time below zero or of years is no measurement."""
    write_receipt(tmp_path, "mamba@cpu", {"chain": seconds})
    assert read_receipts(tmp_path)[0] == []


def test_only_what_is_missing(run: Run, folder: Path, tmp_path: Path) -> None:
    """A leg that passed in this plan is left out of the matrix, and the plan stays whole."""
    receipts = tmp_path / "receipts"
    words = ("--event", "release", "--tier", "3", "--manifests", str(folder))
    plan = tmp_path / "plan.json"
    run("plan", *words, "-o", str(plan))
    digest = json.loads(plan.read_text(encoding="utf-8"))["digest"]
    write_receipt(receipts, "gpt2@cpu", {"refuse": 1.0}, plan=digest)
    write_receipt(receipts, "chatglm@cpu", {"refuse": 1.0})
    failed = [{"lane": "refuse", "status": "fail", "seconds": 1.0}]
    write_receipt(receipts, "starcoder2@cpu", {}, plan=digest, lanes=failed)
    result = run("emit", *words, "--only-missing", str(receipts), "--plan", str(plan))
    assert [entry["id"] for entry in json.loads(result.out)["include"]] == ["chatglm@cpu", "starcoder2@cpu"]
    assert "1 of 3 legs have passed" in result.err
    assert json.loads(plan.read_text(encoding="utf-8"))["digest"] == digest


def test_nothing_is_missing(run: Run, folder: Path, tmp_path: Path) -> None:
    """When every leg has passed, the matrix is empty and `has_legs` says so; a green one never owes it to this."""
    words = ("--event", "release", "--family", "gpt2", "--manifests", str(folder))
    digest = json.loads(run("plan", *words).out)["digest"]
    write_receipt(tmp_path, "gpt2@cpu", {"refuse": 1.0}, plan=digest)
    result = run("emit", *words, "--only-missing", str(tmp_path), "--format", "github")
    assert "has_legs<<" in result.out
    assert "\nfalse\n" in result.out
    assert "\n1\n" in result.out


def test_receipts_of_another_plan_do_not_count(tmp_path: Path) -> None:
    """Evidence is of one plan."""
    write_receipt(tmp_path, "mamba@cpu", {"chain": 1.0}, plan="sha256:" + "1" * 64)
    receipts, _ = read_receipts(tmp_path)
    assert passed_legs(receipts, "sha256:" + "1" * 64) == {"mamba@cpu"}
    assert passed_legs(receipts, "sha256:" + "2" * 64) == set()


NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)


def verdict(path: Path, made: str, state: str = "green") -> Path:
    """A verdict as far as its age goes."""
    path.write_text(json.dumps({"state": state, "context": {"certified_at": made}}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("made", "state", "fresh"),
    [
        ("2026-11-29T11:00:00Z", "green", True),
        ("2026-11-26T12:00:00Z", "green", True),
        ("2026-11-26T11:59:59Z", "green", False),
        ("2026-11-20T12:00:00+00:00", "green", False),
        ("2026-11-29T12:04:00Z", "green", True),
        ("2026-11-29T12:20:00Z", "green", False),
        ("2026-11-29T11:00:00Z", "red", False),
        ("2026-11-29T11:00:00Z", "infra", False),
    ],
)
def test_freshness(tmp_path: Path, made: str, state: str, fresh: bool) -> None:
    """G16: nine days old, from the future or not green is not fresh."""
    path = verdict(tmp_path / "verdict.json", made, state)
    if fresh:
        require_fresh(path, 3, NOW)
    else:
        with pytest.raises(NotFresh):
            require_fresh(path, 3, NOW)


@pytest.mark.parametrize("text", ["", "{}", "null", '{"context": {"certified_at": "x"}, "state": "green"}', "[" * 9999,
                                  '{"context": {"certified_at": "2026-11-29T11:00:00"}, "state": "green"}'])  # fmt: skip
def test_what_is_no_verdict_is_not_fresh(run: Run, tmp_path: Path, text: str) -> None:
    """Neither a broken file nor none at all passes."""
    path = tmp_path / "verdict.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidValue):
        require_fresh(path, 3, NOW)
    assert run("emit", "--tier", "1", "--check-freshness", str(path)).code == 2
    assert run("emit", "--tier", "1", "--check-freshness", str(tmp_path / "none")).code == 1


def test_an_old_verdict_stops_emit(run: Run, tmp_path: Path) -> None:
    """The command fails and prints no matrix."""
    result = run("emit", "--tier", "1", "--check-freshness", str(verdict(tmp_path / "v", "2020-01-01T00:00:00Z")))
    assert (result.code, result.out) == (1, "")
