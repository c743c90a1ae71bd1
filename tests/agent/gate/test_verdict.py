"""The verdict names everything that is not as planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import NeedsInvalid
from agent.gate.evidence import Evidence, RefusedFile
from agent.gate.minimums import least_comparisons
from agent.gate.needs import parse_needs
from agent.gate.reason import Cause, State
from agent.gate.verdict import judge
from agent.lanes.result import Status
from agent.receipt.receipt import Receipt
from matrixgen.battery import LaneSpec
from matrixgen.canonical import sha256_hex
from tests.agent.gate.kit import (
    BASE,
    PLAN,
    RUN,
    complete,
    context,
    filed,
    receipt_of,
    verdict_of,
    with_lane,
    with_subject,
)

Change = Callable[[Receipt], Receipt]
WEIGHTS, CUDA, TWIN = PLAN.leg("qwen3-dense@cpu"), PLAN.leg("qwen3-dense@cuda"), PLAN.leg("mamba2@cpu")


def test_a_complete_run_is_green() -> None:
    """Every planned leg with a good receipt, all jobs successful: green, nothing to say, everything counted."""
    verdict = verdict_of(complete(), jobs={"build": "success", "certify": "success"})
    assert (verdict.state, verdict.causes) == (State.GREEN, ())
    assert [leg.leg for leg in verdict.legs] == [leg.id for leg in PLAN.legs]
    assert verdict.comparisons == sum(receipt.comparisons for receipt in complete()) > 0


# the way in which one receipt is wrong -> what the verdict calls it
FAULTS: dict[str, tuple[Change, Cause, State]] = {
    "plan": (lambda r: replace(r, plan="sha256:" + "0" * 64), Cause.WRONG_PLAN, State.RED),
    "event": (lambda r: replace(r, event="release"), Cause.WRONG_PLAN, State.RED),
    "pin": (lambda r: replace(r, pin={**r.pin, "commit": "0" * 40}), Cause.WRONG_PIN, State.RED),
    "patch-queue[G14]": (
        lambda r: replace(r, pin={**r.pin, "patches": [{"name": "0001-x.patch", "sha256": "0" * 64}]}),
        Cause.WRONG_PIN,
        State.RED,
    ),
    "pin-by-tag[G12]": (lambda r: replace(r, pin={"commit": "b10516"}), Cause.WRONG_PIN, State.RED),
    "row": (lambda r: replace(r, family={**r.family, "cache": "disabled"}), Cause.WRONG_FAMILY, State.RED),
    "another-build-ran": (
        lambda r: replace(r, engine={**r.engine, "build": {"key": "build-x"}}),
        Cause.WRONG_BUILD,
        State.RED,
    ),
    "build-key": (lambda r: replace(r, build_key=r.build_key + "x"), Cause.WRONG_BUILD, State.RED),
    "no-libraries": (lambda r: replace(r, engine={"version": "1"}), Cause.WRONG_BUILD, State.RED),
    "empty-libraries": (lambda r: replace(r, engine={"version": "1", "libraries": {}}), Cause.WRONG_BUILD, State.RED),
    "other-libraries": (
        lambda r: replace(r, engine={"version": "0.5.0", "libraries": {"libllama.so": sha256_hex(r.leg)}}),
        Cause.WRONG_BUILD,
        State.RED,
    ),
    "subject-kind": (lambda r: with_subject(r, kind="twin"), Cause.WRONG_SUBJECT, State.RED),
    "architecture": (lambda r: with_subject(r, architecture="llama"), Cause.WRONG_FILES, State.RED),
    "no-files": (lambda r: with_subject(r, files=()), Cause.WRONG_FILES, State.RED),
    "file-digest": (
        lambda r: with_subject(r, files=tuple(replace(f, sha256="0" * 64) for f in r.subject.files)),
        Cause.WRONG_FILES,
        State.RED,
    ),
    "file-size": (
        lambda r: with_subject(r, files=tuple(replace(f, size=f.size + 1) for f in r.subject.files)),
        Cause.WRONG_FILES,
        State.RED,
    ),
    "extra-file": (
        lambda r: with_subject(r, files=(*r.subject.files, replace(r.subject.files[0], name="x.gguf"))),
        Cause.WRONG_FILES,
        State.RED,
    ),
    "file-twice": (lambda r: with_subject(r, files=r.subject.files * 2), Cause.WRONG_FILES, State.RED),
    "lane-missing": (lambda r: replace(r, lanes=r.lanes[1:]), Cause.LANES_DIFFER, State.RED),
    "lane-repeated": (lambda r: replace(r, lanes=(*r.lanes, r.lanes[0])), Cause.LANES_DIFFER, State.RED),
    "lane-not-owed": (
        lambda r: replace(r, lanes=(*r.lanes, replace(r.lanes[0], lane="chain"))),
        Cause.LANES_DIFFER,
        State.RED,
    ),
    "lanes-out-of-order": (lambda r: replace(r, lanes=r.lanes[::-1]), Cause.LANES_DIFFER, State.RED),
    "lane-failed[A17]": (
        lambda r: with_lane(r, 0, status=Status.FAIL, problems=("cut 3: wrong",)),
        Cause.LEG_FAILED,
        State.RED,
    ),
    "lane-unsupported": (
        lambda r: with_lane(r, 1, status=Status.UNSUPPORTED, problems=("no",)),
        Cause.LANE_NOT_PASSED,
        State.RED,
    ),
    "lane-not-applicable": (
        lambda r: with_lane(r, 1, status=Status.NOT_APPLICABLE, problems=("no",)),
        Cause.LANE_NOT_PASSED,
        State.RED,
    ),
    "pass-with-problems": (lambda r: with_lane(r, 1, problems=("hidden",)), Cause.LANE_NOT_PASSED, State.RED),
    "lane-infra": (
        lambda r: with_lane(r, 0, status=Status.INFRA, problems=("out of memory",)),
        Cause.LEG_INFRA,
        State.INFRA,
    ),
    "nothing-compared": (lambda r: with_lane(r, 0, comparisons=0), Cause.TOO_FEW_COMPARISONS, State.RED),
    "too-few": (
        lambda r: with_lane(r, -1, comparisons=r.lanes[-1].comparisons - 1),
        Cause.TOO_FEW_COMPARISONS,
        State.RED,
    ),
    "other-run[C21]": (lambda r: replace(r, run={**RUN, "run_id": "699"}), Cause.STALE_RECEIPT, State.RED),
    "no-run": (lambda r: replace(r, run={}), Cause.STALE_RECEIPT, State.RED),
    "later-attempt": (lambda r: replace(r, run={**RUN, "attempt": "2"}), Cause.STALE_RECEIPT, State.RED),
    **{
        f"attempt-{text!r}": (
            lambda r, text=text: replace(r, run={**RUN, "attempt": text}),  # type: ignore[misc]
            Cause.STALE_RECEIPT,
            State.RED,
        )
        for text in ("0", "-1", "", "one", "1.0", "٣", "1" * 400)
    },
    "other-repository": (lambda r: replace(r, run={**RUN, "repository": "fork/llm"}), Cause.STALE_RECEIPT, State.RED),
    "no-repository": (
        lambda r: replace(r, run={k: v for k, v in RUN.items() if k != "repository"}),
        Cause.STALE_RECEIPT,
        State.RED,
    ),
    "other-commit[G5]": (lambda r: replace(r, run={**RUN, "sha": "c" * 40}), Cause.WRONG_COMMIT, State.RED),
    "no-commit": (
        lambda r: replace(r, run={k: v for k, v in RUN.items() if k != "sha"}),
        Cause.WRONG_COMMIT,
        State.RED,
    ),
    "ended-before-it-began": (
        lambda r: replace(r, finished_at="2026-11-29T09:00:00+00:00"),
        Cause.WRONG_TIMES,
        State.RED,
    ),
    "no-time": (lambda r: replace(r, started_at="2026-99-99T99:99:99Z"), Cause.WRONG_TIMES, State.RED),
    "other-device": (
        lambda r: replace(r, device={"name": "CPU", "backend": "rocm"}),
        Cause.WRONG_DEVICE,
        State.RED,
    ),
    "no-device": (lambda r: replace(r, device={}), Cause.WRONG_DEVICE, State.RED),
    "no-nodes": (lambda r: replace(r, nodes_by_device={}), Cause.WRONG_DEVICE, State.RED),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("leg", [WEIGHTS, CUDA], ids=lambda leg: leg.id)
def test_a_wrong_receipt_is_named(name: str, leg: object) -> None:
    """One wrong receipt among good ones: its leg has the cause, the verdict the state, the other legs stay green."""
    change, cause, state = FAULTS[name]
    receipts = [change(receipt) if receipt.leg == leg.id else receipt for receipt in complete()]  # type: ignore[attr-defined]
    verdict = verdict_of(receipts)
    wrong = {entry.leg: entry for entry in verdict.legs}[leg.id]  # type: ignore[attr-defined]
    assert cause in {reason.cause for reason in wrong.reasons}
    assert wrong.state is state
    assert verdict.state is state
    others = [entry for entry in verdict.legs if entry.leg != wrong.leg]
    if name != "other-libraries":  # there nobody can know which of two is right
        assert {entry.state for entry in others} == {State.GREEN}


@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, device={"name": "CPU", "backend": "cpu"}),
        lambda r: replace(r, nodes_by_device={"CPU": 300, "CUDA0": 0}),
        lambda r: replace(r, nodes_by_device={"CPU": 300, "CUDA0": 300}),
        lambda r: replace(r, nodes_by_device={"CPU": 300}),
    ],
    ids=["device-is-the-cpu", "no-node-on-the-gpu", "half-of-them", "gpu-not-named"],
)
def test_a_cuda_leg_that_ran_on_the_cpu_is_red(change: Change) -> None:
    """A leg for an accelerator counts only with the accelerator's name and most nodes of the graph there."""
    verdict = verdict_of([change(r) if r.leg == CUDA.id else r for r in complete()])
    assert verdict.causes == (Cause.WRONG_DEVICE,)


def test_a_twin_needs_its_recipe() -> None:
    """A twin leg whose receipt names no recipe is red."""
    verdict = verdict_of([with_subject(r, recipe=None) if r.leg == TWIN.id else r for r in complete()])
    assert verdict.causes == (Cause.WRONG_FILES,)


def test_missing_leg_is_infra_and_blocks() -> None:
    """[B11] A leg that never wrote a receipt: leg_missing, infra, never green."""
    verdict = verdict_of(complete()[1:])
    assert (verdict.state, verdict.causes) == (State.INFRA, (Cause.LEG_MISSING,))


def test_the_unfinished_receipt_of_a_lost_runner_is_infra() -> None:
    """[B2] The receipt that certify writes first, before anything ran, is infra and not red."""
    leg = WEIGHTS
    lanes = tuple(
        replace(lane, status=Status.INFRA, comparisons=0, problems=("the leg did not run to its end",), measurements={})
        for lane in receipt_of(leg).lanes
    )
    unfinished = with_subject(
        receipt_of(leg, lanes=lanes, engine={}, device={}, nodes_by_device={}), architecture="", files=()
    )
    verdict = verdict_of([unfinished if r.leg == leg.id else r for r in complete()])
    assert (verdict.state, verdict.causes) == (State.INFRA, (Cause.LEG_INFRA,))


def test_no_receipt_at_all_is_not_green() -> None:
    """[G1][G10] Nothing reported yet: every leg of the plan is missing, since the plan says how many there are."""
    verdict = verdict_of([])
    assert verdict.state is State.INFRA
    assert sum(reason.cause is Cause.LEG_MISSING for leg in verdict.legs for reason in leg.reasons) == len(PLAN.legs)


def test_a_plan_without_legs_is_red() -> None:
    """[A8] no_rows: nothing was certified."""
    verdict = verdict_of([], replace(PLAN, legs=()))
    assert (verdict.state, verdict.causes) == (State.RED, (Cause.NO_ROWS,))


def test_the_build_is_blamed_and_not_the_legs() -> None:
    """[A8][G11][F9] The builder failed and certify was skipped: build_failed comes first, red, and legs say why."""
    verdict = verdict_of([], jobs={"plan": "success", "build": "failure", "certify": "skipped"})
    assert verdict.state is State.RED
    assert verdict.causes == (Cause.BUILD_FAILED, Cause.LEG_MISSING, Cause.JOB_SKIPPED)
    assert all("the build failed" in leg.reasons[-1].message for leg in verdict.legs)


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        ("skipped", Cause.JOB_SKIPPED),
        ("cancelled", Cause.JOB_CANCELLED),
        ("failure", Cause.JOB_FAILED),
        ("", Cause.JOB_UNKNOWN),
        ("Success", Cause.JOB_UNKNOWN),
        ("success ", Cause.JOB_UNKNOWN),
        ("neutral", Cause.JOB_UNKNOWN),
    ],
    ids=lambda value: f"A7-{value!r}",
)
def test_only_success_counts_for_a_job(result: str, cause: Cause) -> None:
    """[A7] With every receipt good, a job that is anything else than `success` blocks."""
    verdict = verdict_of(complete(), jobs={"certify": result})
    assert verdict.causes == (cause,)
    assert verdict.state is not State.GREEN


def test_a_gate_without_jobs_is_blocked() -> None:
    """[A7] An empty needs context is not a success."""
    assert verdict_of(complete(), jobs={}).causes == (Cause.JOB_UNKNOWN,)


def test_green_jobs_do_not_stand_for_receipts() -> None:
    """[A29] `continue-on-error` makes jobs green; the receipts decide."""
    receipts = [with_lane(complete()[0], 0, status=Status.FAIL, problems=("wrong",)), *complete()[1:]]
    assert verdict_of(receipts, jobs={"certify": "success"}).causes == (Cause.LEG_FAILED,)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '"x"', '{"a": 1}', '{"a": []}', "{" * 50_000, '{"a":' * 20_000], ids=range(8)
)
def test_bad_needs_are_bad_input(text: str) -> None:
    """What is no needs context is refused with the way to pass one."""
    with pytest.raises(NeedsInvalid, match="toJSON"):
        parse_needs(text)


def test_needs_of_github_are_read() -> None:
    """Outputs are ignored, a job without a result has the empty one."""
    text = '{"build": {"result": "success", "outputs": {"x": "y"}}, "plan": {}, "odd": {"result": 3}}'
    assert parse_needs(text) == {"build": "success", "plan": "", "odd": ""}


def test_the_highest_attempt_counts() -> None:
    """[C21][F8] Red in attempt 1, green in attempt 2, the other leg green in attempt 1: green, in any order."""
    first = with_lane(complete()[0], 0, status=Status.FAIL, problems=("wrong",))
    again = replace(complete()[0], run={**RUN, "attempt": "2"})
    entries = [filed(first, "1/receipt.json"), filed(again, "2/receipt.json"), *map(filed, complete()[1:])]
    for order in (entries, entries[::-1], entries[1:] + entries[:1]):
        verdict = verdict_of(order, attempt=2)
        assert verdict.state is State.GREEN
        assert {leg.attempt for leg in verdict.legs} == {1, 2}
        assert any("superseded" in note for note in verdict.legs[0].notes)


def test_a_later_red_attempt_is_not_hidden_by_an_earlier_green_one() -> None:
    """[C21] Last green does not win, highest attempt does."""
    again = replace(with_lane(complete()[0], 0, status=Status.FAIL, problems=("x",)), run={**RUN, "attempt": "2"})
    verdict = verdict_of([filed(again, "2/receipt.json"), *map(filed, complete())], attempt=2)
    assert verdict.causes == (Cause.LEG_FAILED,)


def test_two_receipts_of_one_attempt_that_differ_are_a_conflict() -> None:
    """Neither is believed; a copy of the same one is only noted."""
    other = replace(complete()[0], log="something else")
    verdict = verdict_of([filed(other, "x/receipt.json"), *map(filed, complete())])
    assert Cause.CONFLICTING_RECEIPTS in verdict.causes
    assert verdict.state is State.RED
    copies = verdict_of([filed(complete()[0], "x/receipt.json"), *map(filed, complete())])
    assert copies.state is State.GREEN
    assert any("another copy" in note for note in copies.legs[0].notes)


def test_a_foreign_receipt_is_named_and_red() -> None:
    """[G1][A9] A leg that is not in the plan, for example of a family that moved, is never ignored."""
    plan = replace(PLAN, legs=PLAN.legs[1:])
    receipts = [replace(receipt, plan=plan.digest) for receipt in complete()]
    verdict = verdict_of(receipts, plan)
    assert (verdict.state, verdict.causes) == (State.RED, (Cause.FOREIGN_RECEIPT,))


def test_skipped_rows_stay_in_the_verdict() -> None:
    """[A27] What the plan does not test is listed with its reason, apart from what was tested."""
    verdict = verdict_of(complete())
    assert verdict.skipped == PLAN.skipped
    assert verdict.skipped
    assert not {entry.family for entry in verdict.skipped} & {leg.leg.partition("@")[0] for leg in verdict.legs}


def test_signatures_count_where_they_are_required() -> None:
    """Without a bundle a receipt is unsigned; of two copies the signed one is taken."""
    assert verdict_of(complete(), signatures_required=True).causes == (Cause.UNSIGNED,)
    signed = [filed(receipt, unsigned=None) for receipt in complete()]
    bare = [filed(receipt, f"a/{receipt.leg}/receipt.json") for receipt in complete()]
    assert verdict_of([*bare, *signed], signatures_required=True).state is State.GREEN


def test_refused_files_are_not_forgotten() -> None:
    """A file that is called a receipt and is none makes the verdict red or infra, by its cause."""
    entries = tuple(map(filed, complete()))
    for cause, state in ((Cause.RECEIPT_EDITED, State.RED), (Cause.RECEIPT_UNREADABLE, State.INFRA)):
        refused = (RefusedFile(place="x/receipt.json", cause=cause, message="m"),)
        verdict = judge(PLAN, Evidence(receipts=entries, refused=refused), context())
        assert (verdict.state, verdict.causes) == (state, (cause,))


def test_a_local_run_needs_no_run_id_and_mixes_no_runs() -> None:
    """Without a run id all receipts must be of one run, whichever it is."""
    local = [replace(receipt, run={}) for receipt in complete()]
    changes: dict[str, Any] = {"run_id": None, "attempt": None, "repository": None, "base_commit": None}
    assert verdict_of(local, **changes).state is State.GREEN
    assert verdict_of(complete(), **changes).state is State.GREEN
    assert verdict_of([*local[:2], *complete()[2:]], **changes).causes == (Cause.STALE_RECEIPT, Cause.LEG_MISSING)


def test_text_of_receipts_cannot_speak_to_the_runner() -> None:
    """Escape codes, line breaks and workflow commands in a receipt are made harmless, and long text is cut."""
    evil = "\x1b[31m\n::set-output name=x::y\n##[error]\u202e" + "x" * 5000
    receipt = with_lane(complete()[0], 0, status=Status.FAIL, problems=(evil,))
    (message,) = [reason.message for leg in verdict_of([receipt, *complete()[1:]]).legs for reason in leg.reasons]
    assert message.isprintable()
    assert "::" not in message
    assert "##[" not in message
    assert len(message) <= 300


@pytest.mark.parametrize(
    ("lane", "cuts", "least"),
    [
        (LaneSpec("boundary-sweep", {"cuts": "all"}, 48), 7, 336),
        (LaneSpec("boundary-sweep", {"cuts": "all"}, 48), 0, 48),
        (LaneSpec("boundary-sweep", {"cuts": "classes"}, 48), 7, 48),
        (LaneSpec("single-step", {"cuts": "all"}, 48), 7, 48),
        (LaneSpec("inspect", {}, 0), 1, 1),
        (LaneSpec("of-the-future", {}), 1, 1),
    ],
)
def test_least_comparisons(lane: LaneSpec, cuts: int, least: int) -> None:
    """The plan's minimum, for each legal cut where all are swept, and never below one."""
    assert least_comparisons(lane, legal_cuts=cuts) == least


def test_a_sweep_that_left_cuts_out_is_red() -> None:
    """The leg's own inspection found more legal cuts than the sweep compared."""
    receipt = receipt_of(TWIN)
    sweep = [lane.name for lane in TWIN.lanes].index("boundary-sweep")
    inspected = with_lane(receipt, 0, measurements={"legal_cuts": [1, 2, 3]})
    others = [entry for entry in complete() if entry.leg != TWIN.id]
    assert verdict_of([*others, inspected]).causes == (Cause.TOO_FEW_COMPARISONS,)
    swept = with_lane(inspected, sweep, comparisons=3 * 48)
    assert verdict_of([*others, swept]).state is State.GREEN


def test_the_verdict_says_what_was_tested() -> None:
    """[G5] Base commit, plan digest and pin are part of the verdict."""
    verdict = verdict_of(complete(), base_tree="d" * 40)
    assert (verdict.context.base_commit, verdict.context.base_tree) == (BASE, "d" * 40)
    assert (verdict.plan, verdict.pin) == (PLAN.digest, PLAN.pin.to_json())


def test_libraries_are_traced_to_the_builds() -> None:
    """Where the builds' lists are given, each library must be of the build that the plan asked for, under that key."""
    whole = tuple(map(filed, complete()))
    builds = {
        entry.receipt.build_key: frozenset(entry.receipt.engine["libraries"].values()) | {"0" * 64} for entry in whole
    }
    assert judge(PLAN, Evidence(receipts=whole, builds=builds), context(builds_checked=True)).state is State.GREEN
    for wrong in ({}, {**builds, "build-cuda~": builds["build-cpu~"]}, {key: frozenset({"0" * 64}) for key in builds}):
        verdict = judge(PLAN, Evidence(receipts=whole, builds=wrong), context(builds_checked=True))
        assert (verdict.state, verdict.causes) == (State.RED, (Cause.WRONG_BUILD,))


@pytest.mark.parametrize("value", [5, None, [], {}, "", True], ids=repr)
def test_a_digest_of_another_type_is_no_digest(value: object) -> None:
    """Whatever JSON stands where the digest of a library should be is not of the build."""
    odd = replace(complete()[0], engine={"version": "1", "libraries": {"libllama.so": value}})
    entries = (filed(odd), *map(filed, complete()[1:]))
    builds = {f"build-{name}~": frozenset({"0" * 64}) for name in ("cpu", "cuda")}
    assert judge(PLAN, Evidence(receipts=entries, builds=builds), context()).state is State.RED
