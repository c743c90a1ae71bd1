"""From a plan to receipts: what was tested, what was not, and what is on the disk when a run is lost."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.certify import Options, certify
from agent.engine.devices import list_devices
from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import Receipt, read_receipt, write_receipt
from agent.twin.catalog import recipe_for
from matrixgen.leg import Leg, Plan
from matrixgen.plan import write_plan
from tests.agent.bad_files import OTHER_ROLES, UNREADABLE, Make
from tests.agent.conftest import ROOT, changed, command_line

Plans = Callable[..., Plan]


class Told:
    """A reporter that notes what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def leg_started(self, leg: Leg) -> None:
        self.events.append(("leg", leg.id))

    def lane_started(self, leg: Leg, lane: str) -> None:
        self.events.append(("lane", leg.id, lane))

    def lane_finished(self, leg: Leg, result: LaneResult) -> None:
        self.events.append(("result", leg.id, result.lane, str(result.status)))

    def leg_finished(self, leg: Leg, receipt: Receipt) -> None:
        self.events.append(("receipt", leg.id, str(receipt.status)))


def of_lanes(plan: Plan, *lanes: str) -> Plan:
    """The same plan with some of its lanes only."""
    legs = tuple(changed(leg, lanes=tuple(lane for lane in leg.lanes if lane.name in lanes)) for leg in plan.legs)
    return changed(plan, legs=legs)


def run(plan: Plan, options: Options, reporter: Told | None = None) -> tuple[Receipt, ...]:
    """Certify a whole plan."""
    return certify(plan, plan.legs, options, reporter or Told())


def test_a_receipt_says_what_was_tested_and_where(plans: Plans, options: Options, twin: Callable[[str], Path]) -> None:
    """Plan, build, files, recipe, engine, device and lanes are those of the run; what is on the disk is what is returned."""
    plan = of_lanes(plans("qwen3-dense"), "inspect", "contract")
    told = Told()
    (receipt,) = run(plan, options, told)
    (leg,) = plan.legs
    assert receipt.status is Status.PASS
    assert (receipt.leg, receipt.plan, receipt.event) == ("qwen3-dense@cpu", plan.digest, "pull-request")
    assert receipt.family == leg.family.to_row()
    assert receipt.pin == plan.pin.to_json()
    assert receipt.build_key == leg.build_key
    path = twin("qwen3-dense")
    (file,) = receipt.subject.files
    assert (file.name, file.size) == (path.name, path.stat().st_size)
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert receipt.subject.kind == "twin"
    assert receipt.subject.recipe == recipe_for("qwen3", family="qwen3-dense").digest
    assert "real weights" in receipt.subject.does_not_prove
    assert receipt.device["backend"] == "cpu"
    assert receipt.nodes_by_device[receipt.device["name"]] > 100
    assert [lane.lane for lane in receipt.lanes] == ["inspect", "contract"]
    assert read_receipt(options.receipts / "qwen3-dense@cpu" / "receipt.json") == receipt
    assert told.events == [
        ("leg", "qwen3-dense@cpu"),
        ("lane", "qwen3-dense@cpu", "inspect"),
        ("result", "qwen3-dense@cpu", "inspect", "pass"),
        ("lane", "qwen3-dense@cpu", "contract"),
        ("result", "qwen3-dense@cpu", "contract", "pass"),
        ("receipt", "qwen3-dense@cpu", "pass"),
    ]


def test_legs_run_side_by_side_and_come_back_in_order(plans: Plans, options: Options) -> None:
    """Two at a time; each has its own receipt, in the order of the plan."""
    plan = of_lanes(plans("qwen3-dense", "mamba", "rwkv7"), "inspect")
    receipts = run(plan, replace(options, jobs=2))
    assert [receipt.leg for receipt in receipts] == ["mamba@cpu", "qwen3-dense@cpu", "rwkv7@cpu"]
    assert all(receipt.status is Status.PASS for receipt in receipts)
    assert sorted(path.name for path in options.receipts.iterdir()) == [receipt.leg for receipt in receipts]


def test_a_real_file_is_tested_as_weights(plans: Plans, options: Options, twin: Callable[[str], Path]) -> None:
    """What a pass proves is said of the file that was given, and no recipe is named."""
    plan = of_lanes(plans("qwen3-dense", subject="weights", event="manual-full"), "inspect")
    (receipt,) = run(plan, replace(options, model=twin("qwen3-dense")))
    assert receipt.status is Status.PASS
    assert receipt.subject.kind == "weights"
    assert receipt.subject.recipe is None
    assert "these files" in receipt.subject.proves


def weights(plans: Plans) -> Plan:
    """A leg that wants a real file, with two lanes."""
    return of_lanes(plans("qwen3-dense", subject="weights", event="manual-full"), "inspect", "chain")


def expect_refusal(
    plan: Plan, options: Options, children: list[list[str]], status: Status, *words: str
) -> tuple[Receipt, Told]:
    """Certify, and check that all lanes have one status and one message, and that no process was started."""
    told = Told()
    children.clear()
    (receipt,) = run(plan, options, told)
    assert children == []
    assert receipt.status is status
    assert {(lane.status, lane.comparisons) for lane in receipt.lanes} == {(status, 0)}
    assert {lane.lane for lane in receipt.lanes} == {lane.name for lane in plan.legs[0].lanes}
    for lane in receipt.lanes:
        assert all(word in lane.summary for word in words), lane.summary
    assert read_receipt(options.receipts / receipt.leg / "receipt.json") == receipt
    assert ("lane", receipt.leg, "inspect") not in told.events
    assert receipt.engine == receipt.device == receipt.nodes_by_device == {}
    return receipt, told


@pytest.mark.parametrize("verdict", UNREADABLE)
def test_a_file_that_is_no_model_starts_no_child(
    plans: Plans,
    options: Options,
    twin: Callable[[str], Path],
    tmp_path: Path,
    children: list[list[str]],
    verdict: str,
) -> None:
    """The verdict is named with the file, every lane fails with it, and llama.cpp never sees the bytes."""
    path = tmp_path / "model.gguf"
    UNREADABLE[verdict](path, twin("qwen3-dense").read_bytes())
    receipt, _ = expect_refusal(
        weights(plans), replace(options, model=path), children, Status.FAIL, f"model.gguf: {verdict}: "
    )
    assert receipt.subject.files == ()
    assert receipt.subject.proves == "nothing"


@pytest.mark.parametrize(("role", "make"), OTHER_ROLES.items())
def test_a_file_of_another_role_starts_no_child(
    plans: Plans, options: Options, tmp_path: Path, children: list[list[str]], role: str, make: Make
) -> None:
    """A projector, a vocabulary, an encoder or an adapter is not a model that can be split."""
    path = tmp_path / f"{role}.gguf"
    make(path, b"")
    receipt, _ = expect_refusal(
        weights(plans), replace(options, model=path), children, Status.FAIL, "wrong_role", f"{role}.gguf"
    )
    assert [file.name for file in receipt.subject.files] == [f"{role}.gguf"]


def test_a_file_of_another_architecture_starts_no_child(
    plans: Plans, options: Options, twin: Callable[[str], Path], children: list[list[str]]
) -> None:
    """D20: the row's architecture and the file's are compared first, whatever the file is called."""
    receipt, _ = expect_refusal(
        weights(plans),
        replace(options, model=twin("rwkv7")),
        children,
        Status.FAIL,
        "'rwkv7'",
        "'qwen3'",
        "qwen3-dense",
    )
    assert receipt.subject.architecture == "rwkv7"


def test_weights_that_are_not_here_are_infra(plans: Plans, options: Options, children: list[list[str]]) -> None:
    """A leg without its file says nothing about the model."""
    expect_refusal(weights(plans), options, children, Status.INFRA, "not on this machine", "--model", "--twin")


def test_a_device_that_is_not_here_is_infra(plans: Plans, options: Options) -> None:
    """B18: a leg for an accelerator is never run on the CPU."""
    absent = next(name for name in ("cuda", "metal") if name not in {device.backend for device in list_devices()})
    plan = of_lanes(plans("qwen3-dense"), "inspect", "contract")
    legs = tuple(changed(leg, id=f"qwen3-dense@{absent}", backend=absent) for leg in plan.legs)
    (receipt,) = run(changed(plan, legs=legs), options)
    assert receipt.status is Status.INFRA
    assert all(absent in lane.summary for lane in receipt.lanes)


def test_a_leg_that_ran_on_another_device_is_infra(plans: Plans, options: Options) -> None:
    """Passes of a CPU run are not kept for a leg of an accelerator, even if somebody asks for the CPU."""
    plan = of_lanes(plans("qwen3-dense"), "inspect", "contract")
    legs = tuple(changed(leg, id="qwen3-dense@cuda", backend="cuda") for leg in plan.legs)
    (receipt,) = run(changed(plan, legs=legs), replace(options, device="cpu"))
    assert receipt.status is Status.INFRA
    assert all(lane.comparisons == 0 and "cuda" in lane.summary for lane in receipt.lanes)
    assert receipt.device["backend"] == "cpu"


def test_a_lane_that_is_not_known_fails_alone(plans: Plans, options: Options) -> None:
    """A plan of a newer matrixgen: the lane is named, the others are run."""
    plan = of_lanes(plans("qwen3-dense"), "inspect", "contract")
    (leg,) = plan.legs
    lanes = (changed(leg.lanes[0], name="telepathy", params={}), *leg.lanes[1:])
    (receipt,) = run(changed(plan, legs=(changed(leg, lanes=lanes),)), options)
    assert receipt.status is Status.FAIL
    assert [str(lane.status) for lane in receipt.lanes] == ["fail", "pass"]
    assert "telepathy" in receipt.lanes[0].summary


def test_no_secret_of_the_environment_is_in_a_receipt(
    plans: Plans, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens and keys that the job has stay out of it; the identity of the run is in it."""
    secrets = {
        "GITHUB_TOKEN": "ghs_0451aaaa",
        "HF_TOKEN": "hf_0451bbbb",
        "AWS_SECRET_ACCESS_KEY": "0451cccc",
        "ACTIONS_RUNTIME_TOKEN": "0451dddd",
        "MY_PASSWORD": "0451eeee",
    }
    identity = {
        "GITHUB_REPOSITORY": "owner/repo",
        "GITHUB_SHA": "1" * 40,
        "GITHUB_RUN_ID": "42",
        "GITHUB_RUN_ATTEMPT": "3",
    }
    for name, value in (secrets | identity).items():
        monkeypatch.setenv(name, value)
    (receipt,) = run(of_lanes(plans("qwen3-dense"), "inspect"), options)
    text = (options.receipts / receipt.leg / "receipt.json").read_text(encoding="utf-8")
    assert not [name for name, value in secrets.items() if value in text]
    assert receipt.run["repository"] == "owner/repo"
    assert receipt.run["sha"] == "1" * 40
    assert (receipt.run["run_id"], receipt.run["attempt"]) == ("42", "3")


def endless(plans: Plans, folder: Path) -> Path:
    """A plan whose leg never ends by itself."""
    plan = of_lanes(plans("qwen3-dense"), "inspect", "determinism")
    (leg,) = plan.legs
    lanes = tuple(
        changed(lane, params={**lane.params, "repeats": 10**6}) if lane.name == "determinism" else lane
        for lane in leg.lanes
    )
    path = folder / "plan.json"
    write_plan(changed(plan, legs=(changed(leg, lanes=lanes),)), path)
    return path


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something holds; the time-out only ends a test that would never end."""
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """Processes that a process started and that are still there."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in listed.read_text(encoding="ascii").split()]
    return found


def is_runner(pid: int) -> bool:
    """True for the child that runs lanes."""
    with contextlib.suppress(OSError):
        return b"agent.runner.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.parametrize("way", ["kill", "interrupt"])
def test_a_run_that_is_lost_leaves_an_unfinished_receipt_and_no_process(plans: Plans, tmp_path: Path, way: str) -> None:
    """While a leg runs its receipt says infra; after a kill or an interrupt it still does, and the child is gone."""
    command = command_line("certify", "--plan", endless(plans, tmp_path), "--receipts", tmp_path / "receipts")
    path = tmp_path / "receipts" / "qwen3-dense@cpu" / "receipt.json"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as agent:
        wait_for(lambda: any(map(is_runner, children_of(agent.pid))))
        assert path.exists()
        runners = list(filter(is_runner, children_of(agent.pid)))
        if way == "kill":
            agent.kill()
        else:
            agent.send_signal(2)
        try:
            _, err = agent.communicate(timeout=90)
        finally:
            agent.kill()
    assert agent.returncode == (-9 if way == "kill" else 130)
    assert "Traceback" not in err
    wait_for(lambda: not any(map(is_runner, runners)))
    receipt = read_receipt(path)
    assert receipt.status is Status.INFRA
    assert [lane.lane for lane in receipt.lanes] == ["inspect", "determinism"]
    assert receipt.lanes[1].summary == "the leg did not run to its end"
    assert receipt.lanes[0].status in (Status.PASS, Status.INFRA)


def test_a_receipt_of_an_earlier_run_is_not_taken_for_that_of_a_later_one(plans: Plans, options: Options) -> None:
    """A pass on the disk is gone as soon as the leg begins again."""
    plan = of_lanes(plans("qwen3-dense"), "inspect")
    run(plan, options)
    path = options.receipts / "qwen3-dense@cpu" / "receipt.json"
    seen: list[Status] = []

    class Look(Told):
        def lane_started(self, leg: Leg, lane: str) -> None:
            super().lane_started(leg, lane)
            seen.append(read_receipt(path).status)

    assert read_receipt(path).status is Status.PASS
    run(plan, options, Look())
    assert seen == [Status.INFRA]
    assert read_receipt(path).status is Status.PASS


class Stop(Told):
    """Stops the run as soon as a lane has ended, as a lost machine does."""

    def __init__(self, lane: str) -> None:
        super().__init__()
        self._lane = lane

    def lane_finished(self, leg: Leg, result: LaneResult) -> None:
        super().lane_finished(leg, result)
        if result.lane == self._lane:
            raise InterruptedError


def lanes_run(told: Told) -> list[str]:
    """Lanes that a child began."""
    return [event[2] for event in told.events if event[0] == "lane"]


def test_an_interrupted_run_goes_on_where_it_was(plans: Plans, options: Options) -> None:
    """What had ended is kept, with a note of when it ran; the rest runs, and the receipt is whole."""
    plan = of_lanes(plans("qwen3-dense"), "inspect", "contract", "cache-policy")
    with pytest.raises(InterruptedError):
        run(plan, options, Stop("contract"))
    begun = read_receipt(options.receipts / "qwen3-dense@cpu" / "receipt.json").started_at

    told = Told()
    (receipt,) = run(plan, replace(options, resume=True), told)
    assert receipt.status is Status.PASS
    assert lanes_run(told) == ["cache-policy"]
    notes = {lane.lane: lane.notes for lane in receipt.lanes}
    assert all(any(begun in note for note in notes[lane]) for lane in ("inspect", "contract"))
    assert not any(begun in note for note in notes["cache-policy"])
    again = Told()
    assert run(plan, replace(options, resume=True), again)[0].status is Status.PASS
    assert lanes_run(again) == []


def test_a_fail_is_kept_as_a_pass_is(plans: Plans, options: Options) -> None:
    """A run that goes on never turns a red lane green by trying again."""
    plan = of_lanes(plans("qwen3-dense"), "inspect", "contract")
    (first,) = run(plan, replace(options, contracts={}))  # no contract is recorded, so that its lane is red
    assert first.status is Status.FAIL
    told = Told()
    (second,) = run(plan, replace(options, resume=True), told)
    assert second.status is Status.FAIL
    assert lanes_run(told) == []


@pytest.mark.parametrize("what", ["plan", "engine", "run", "broken"])
def test_nothing_is_kept_of_another_run(
    plans: Plans, options: Options, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Another plan, other libraries, another CI run, or a receipt that was changed: every lane runs."""
    plan = of_lanes(plans("qwen3-dense"), "inspect", "contract")
    run(plan, options)
    path = options.receipts / "qwen3-dense@cpu" / "receipt.json"
    if what == "plan":
        plan = of_lanes(plans("qwen3-dense"), "inspect", "contract", "cache-policy")
    elif what == "engine":
        receipt = read_receipt(path)
        write_receipt(replace(receipt, engine={**receipt.engine, "version": "0.0.1"}), options.receipts)
    elif what == "run":
        monkeypatch.setenv("GITHUB_RUN_ID", "77")
    else:
        path.write_text(path.read_text(encoding="utf-8").replace('"pass"', '"fail"', 1), encoding="utf-8")
    told = Told()
    (receipt,) = run(plan, replace(options, resume=True), told)
    assert receipt.status is Status.PASS
    assert lanes_run(told)[-2:] == [lane.name for lane in plan.legs[0].lanes][-2:]
    assert not any("kept from" in note for lane in receipt.lanes for note in lane.notes)


def test_a_twin_folder_that_cannot_be_used_is_infra(
    plans: Plans, options: Options, tmp_path: Path, children: list[list[str]]
) -> None:
    """A file in the way of the cache is the machine's fault, and is named."""
    blocked = tmp_path / "blocked"
    blocked.write_text("", encoding="utf-8")
    plan = of_lanes(plans("qwen3-dense"), "inspect", "contract")
    expect_refusal(plan, replace(options, twins=blocked / "twins"), children, Status.INFRA, "blocked")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_named(
    plans: Plans, options: Options, twin: Callable[[str], Path], tmp_path: Path, children: list[list[str]]
) -> None:
    """An unreadable file has a verdict of its own."""
    path = tmp_path / "model.gguf"
    shutil.copy(twin("qwen3-dense"), path)
    path.chmod(0)
    expect_refusal(weights(plans), replace(options, model=path), children, Status.FAIL, "unreadable")
