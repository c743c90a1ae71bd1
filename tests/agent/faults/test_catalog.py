"""Every seeded fault is caught by the lanes that must catch it, which pass without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from agent.commands.folders import twin_folder
from agent.contracts import load_contracts
from agent.errors import EngineError, FaultUnknown
from agent.faults.catalog import FAULTS, find_fault
from agent.lanes.catalog import LANES
from agent.lanes.result import LaneResult, Status
from agent.lanes.subject import Subject
from agent.reporters.fault_table import print_faults
from agent.selftest import Trial, _shorten, run_trials
from matrixgen.battery import LANES as KNOWN_LANES
from matrixgen.manifest import Manifest
from tests.agent.conftest import Legs, Subjects

# small twins, tried in this order until one can show a fault
FAMILIES = ("qwen3-dense", "lfm2", "rwkv7", "deepseek3", "mamba", "granite-hybrid", "qwen3vlmoe")
# these take the process with them, so that they are tried in a child
DEADLY = {"native-abort"}
# their lane is owed on accelerators only; tests/agent/lanes/test_backend_parity.py seeds them on a stand-in
ACCELERATORS = {name for name, fault in FAULTS.items() if fault.lanes == ("backend-parity",)}


def test_every_lane_has_a_fault_that_it_must_catch() -> None:
    """A lane that cannot fail is a defect."""
    watched = {lane for fault in FAULTS.values() for lane in fault.lanes}
    assert set(LANES) <= watched
    assert watched <= set(KNOWN_LANES)
    assert set(KNOWN_LANES) - {"refuse"} <= watched


def test_the_quick_tests_meet_every_fault_and_every_lane() -> None:
    """What is left to the slow tests is more of the same."""
    assert {fault for fault, _ in few()} == set(FAULTS)
    assert {lane for _, lane in few()} == {lane for fault in FAULTS.values() for lane in fault.lanes}


def test_faults_are_described_and_distinct() -> None:
    """Each has its own subject, words for the table, and lanes."""
    assert all(name == fault.name and fault.description and fault.lanes for name, fault in FAULTS.items())
    kinds = [fault.subject for fault in FAULTS.values()]
    assert len(set(kinds)) == len(kinds)
    assert Subject not in kinds


def test_a_seeded_subject_leaves_the_sound_one_alone(subjects: Subjects) -> None:
    """The damage is in the copy: model, header and references are shared, sessions and stages are not."""
    sound = subjects("qwen3-dense")
    for fault in FAULTS.values():
        if fault.applies(sound.contract):
            faulty = fault.seed(sound)
            assert type(faulty) is fault.subject
            assert faulty.model is sound.model
    assert type(sound) is Subject


def test_an_unknown_fault_is_refused_with_the_known_ones() -> None:
    """The message lists what there is."""
    with pytest.raises(FaultUnknown) as refusal:
        find_fault("kv-byte-fliped")
    assert "kv-byte-flipped" in str(refusal.value)


def few() -> set[tuple[str, str]]:
    """Every fault with one of its lanes, and every lane with one of its faults."""
    chosen: set[tuple[str, str]] = set()
    for fault in FAULTS.values():
        seen = {lane for _, lane in chosen}
        chosen.add((fault.name, next((lane for lane in fault.lanes if lane not in seen), fault.lanes[0])))
    return chosen


CASES = [
    pytest.param(fault, lane, marks=() if (fault, lane) in few() else pytest.mark.slow)
    for fault in FAULTS
    for lane in FAULTS[fault].lanes
    if fault not in DEADLY | ACCELERATORS and lane != "backend-parity"
]


@pytest.mark.parametrize(("fault", "lane"), CASES)
def test_a_fault_is_caught_and_its_absence_passes(subjects: Subjects, legs: Legs, fault: str, lane: str) -> None:
    """The lane fails with the fault in place and passes without it, on the same model and parameters."""
    family, params = applicable(subjects, legs, fault, lane)
    sound = subjects(family)
    assert passes(sound, family, lane, params)
    try:
        result = LANES[lane].run(FAULTS[fault].seed(sound), params)
    except EngineError:
        return  # llama.cpp noticed, or the engine did: the runner makes a fail of it
    assert result.status is Status.FAIL, f"{lane} did not notice {fault} on {family}"
    assert result.problems


_sound: dict[tuple[str, str], LaneResult] = {}


def passes(subject: Subject, family: str, lane: str, params: Mapping[str, Any]) -> bool:
    """Whether the lane passes on the sound model; run once for all faults that it must catch."""
    if (family, lane) not in _sound:
        _sound[family, lane] = LANES[lane].run(subject, params)
    return _sound[family, lane].status is Status.PASS


def applicable(subjects: Subjects, legs: Legs, fault: str, lane: str) -> tuple[str, Mapping[str, Any]]:
    """The first family that owes the lane and can show the fault, with short parameters."""
    for family in FAMILIES:
        spec = next((spec for spec in legs(family, event="manual-full").lanes if spec.name == lane), None)
        if spec is not None and FAULTS[fault].applies(subjects(family).contract):
            return family, _shorten(spec.params)
    pytest.skip(f"no small family owes {lane} and can show {fault}")


def trials(manifest: Manifest, legs: Legs, faults: list[str], *families: str) -> tuple[Trial, ...]:
    """Run faults on families in children, as `selftest` does."""
    return run_trials(
        [legs(family, event="manual-full") for family in families],
        faults,
        twins=twin_folder(),
        contracts=load_contracts(manifest.root),
        jobs=2,
        on_leg=lambda _leg: None,
    )


@pytest.mark.slow
def test_what_is_lost_of_compressed_caches_is_seen(manifest: Manifest, legs: Legs) -> None:
    """deepseek4 has windows, compressed keys, an indexer and what is not compressed yet, some of them under one name."""
    for trial in trials(manifest, legs, ["recurrent-state-dropped", "kv-byte-flipped", "indexer-lost"], "deepseek4"):
        assert len(trial.caught) == 2
        assert not trial.missed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "family"),
    [("boundary-tensor-forgotten", family) for family in ("step35", "kimi-k3", "talkie", "hrm-text")]
    + [("recurrent-state-dropped", "plamo2")],
)
def test_what_one_architecture_once_hid_is_seen(manifest: Manifest, legs: Legs, fault: str, family: str) -> None:
    """The rest of a frontier that was made from a tensor written too early, and a state under a name of its own."""
    (trial,) = trials(manifest, legs, [fault], family)
    assert trial.caught
    assert not trial.missed


@pytest.mark.slow
def test_threads_are_held_to_the_bit_where_they_share_cells(manifest: Manifest, legs: Legs) -> None:
    """In deepseek4 greedy steps are held to rounding; a kernel that depends on threads still shows in the prefill."""
    (trial,) = trials(manifest, legs, ["thread-dependent"], "deepseek4")
    assert trial.caught == ("thread-dependent/determinism",)
    assert not trial.missed


def test_a_fault_that_kills_its_process_is_caught(manifest: Manifest, legs: Legs) -> None:
    """An abort in native code fails every lane that it hits, and the trial is counted as caught."""
    deadly = sorted(DEADLY & set(FAULTS)) or ["noisy-node"]
    for trial in trials(manifest, legs, deadly, "qwen3-dense"):
        assert trial.applies
        assert trial.caught
        assert not trial.missed


def test_a_fault_that_cannot_show_is_said_not_to_apply(manifest: Manifest, legs: Legs) -> None:
    """A model without recurrent state cannot lose any; that is neither caught nor missed."""
    (trial,) = trials(manifest, legs, ["recurrent-state-dropped"], "qwen3-dense")
    assert not trial.applies
    assert trial.caught == trial.missed == ()


def test_a_lane_that_does_not_notice_is_a_miss(manifest: Manifest, legs: Legs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that a lane is said to catch and does not is reported by lane and status."""
    fault = FAULTS["other-architecture"]
    monkeypatch.setitem(
        FAULTS,
        fault.name,
        dataclasses.replace(fault, lanes=("inspect", "single-step")),
    )
    (trial,) = trials(manifest, legs, [fault.name], "qwen3-dense")
    assert trial.caught == ("other-architecture/inspect",)
    assert trial.missed == ("other-architecture/single-step (pass)",)


@pytest.mark.slow
def test_every_fault_is_caught_on_every_architecture_that_can_show_it(
    manifest: Manifest, legs: Legs, capsys: pytest.CaptureFixture[str]
) -> None:
    """All faults over all Tier 1 twins: nothing is missed, every fault shows somewhere, and the table says so."""
    families = sorted(family.family for family in manifest.families if family.tier == 1)
    done = trials(manifest, legs, list(FAULTS), *families)
    assert [(trial.leg.id, trial.fault, trial.missed) for trial in done if trial.missed] == []
    assert {trial.fault for trial in done if trial.caught} == set(FAULTS) - ACCELERATORS
    caught = {lane.partition("/")[2] for trial in done for lane in trial.caught}
    assert caught >= set(KNOWN_LANES) - {"refuse", "backend-parity"}
    print_faults(done)
    table = capsys.readouterr().out
    assert all(family in table for family in families)
    assert all(name in table for name in FAULTS)
    assert "and missed 0" in table


def test_the_table_shows_a_miss(legs: Legs, capsys: pytest.CaptureFixture[str]) -> None:
    """Caught, missed and not applicable differ in the table, and a miss is named below it."""
    leg = legs("qwen3-dense", "inspect")
    print_faults(
        [
            Trial(leg=leg, fault="noisy-node", caught=("noisy-node/determinism",), missed=()),
            Trial(leg=leg, fault="wrong-sequence", caught=(), missed=("wrong-sequence/state-handoff (pass)",)),
            Trial(leg=leg, fault="first-layer-only", caught=(), missed=()),
        ]
    )
    lines = {
        line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines() if len(line.split()) == 2
    }
    assert (lines["noisy-node"], lines["wrong-sequence"], lines["first-layer-only"]) == ("✗", "!", "·")


def test_a_miss_is_named_below_the_table(legs: Legs, capsys: pytest.CaptureFixture[str]) -> None:
    """Family, fault and lane, and the count."""
    print_faults(
        [Trial(leg=legs("lfm2", "inspect"), fault="noisy-node", caught=(), missed=("noisy-node/chain (pass)",))]
    )
    out = capsys.readouterr().out
    assert "lfm2: noisy-node/chain (pass) did not notice" in out
    assert "missed 1" in out
