"""What a report must say to count: every field that could make a green of nothing is looked at."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from agent.header.state_size import recurrent_bytes
from agent.lanes.result import Findings, LaneResult
from agent.prebuilt.judge import Step, judge_chain, judge_matrix, judge_scan, judge_step
from agent.prebuilt.judge_handoff import Handoff, judge_handoff
from agent.prebuilt.judge_package import judge_preflight
from agent.prebuilt.target import Target
from tests.agent.conftest import changed
from tests.agent.prebuilt.conftest import Lab
from tests.agent.prebuilt.reports import CHAIN, HANDOFF, PREFLIGHT, STEP, collected

ASKED = Step(stages=((0, 4), (4, 8)), wire="f32")
THREE = Step(stages=((0, 3), (3, 6), (6, 8)), wire="f32")
STATE = Handoff(name="one-stage", start=0, end=8, payload="resident-kv", prefix_tokens=24, hit_repeats=3)

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def target(lab: Lab) -> Target:
    """The twin that the reports are about."""
    return changed(lab.target(), width=64)


def edited(report: dict[str, Any], edit: Edit | None = None) -> dict[str, Any]:
    """A copy of a report with something wrong."""
    data = copy.deepcopy(report)
    if edit:
        edit(data)
    return data


def judged(judge: Callable[[Findings], object]) -> LaneResult:
    """The result of judging a report."""
    findings = Findings("prebuilt-test")
    judge(findings)
    return findings.result("fine")


def at(*path: str | int, value: Any) -> Edit:
    """Set a field."""

    def edit(report: Any) -> None:
        for step in path[:-1]:
            report = report[step]
        report[path[-1]] = value

    return edit


def test_good_reports_pass(target: Target) -> None:
    """The reports that the tests start from have nothing wrong, and each counts what it compared."""
    results = [
        judged(lambda findings: judge_step(STEP, ASKED, target, findings)),
        judged(lambda findings: judge_chain(CHAIN, THREE, target, findings)),
        judged(lambda findings: judge_scan(collected("split-scan", [STEP]), [ASKED], target, findings)),
        judged(lambda findings: judge_handoff(HANDOFF, STATE, target, findings)),
        judged(lambda findings: judge_preflight(PREFLIGHT, target, "b" * 64, findings)),
    ]
    assert [(result.status, result.problems) for result in results] == [("pass", ())] * 5
    assert [result.comparisons for result in results] == [1, 1, 1, 7, 12]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (at("split", "predicted_token", value=15), "says token 15, the whole one 14"),
        (at("matches", value=False), "the report's matches is False"),
        (at("status", value="fail"), "the report's status is fail"),
        (at("split", "boundary", "layer_end", value=15), "the report's cut is 15, it should be 4"),
        (at("split", "wire_dtype", value="f16"), "the report's wire is f16"),
        (at("split", "token_id", value=1), "the token that both were given is 1"),
        (at("split", "boundary", "payload_bytes", value=0), "nothing crossed the cut"),
        (at("split", "boundary", "token_count", value=0), "nothing crossed the cut"),
        (at("stage_models", value=[]), "names no stage"),
        (at("stage_models", 1, "layer_start", value=3), "ran layers 3..8, which nobody asked for"),
        (at("stage_models", 0, "load_mode", value="layer-package"), "the load mode of 0..4 is layer-package"),
    ],
)
def test_a_step_that_does_not_count(edit: Edit, words: str, target: Target) -> None:
    """Another token, another cut, another wire, other layers, nothing at all: each is a problem by name."""
    result = judged(lambda findings: judge_step(edited(STEP, edit), ASKED, target, findings))
    assert result.status == "fail"
    assert any(words in problem for problem in result.problems), result.problems


@pytest.mark.parametrize("token", [-1, 256, 2**31 - 1])
def test_two_answers_that_are_no_tokens_are_not_equal_answers(token: int, target: Target) -> None:
    """A model that computes only NaN may agree with itself: a token that no vocabulary has is a problem."""

    def edit(report: dict[str, Any]) -> None:
        report["baseline"]["predicted_token"] = report["split"]["predicted_token"] = token

    result = judged(lambda findings: judge_step(edited(STEP, edit), ASKED, target, findings))
    assert f"cut 4, f32 wire: {token} is no token of this model" in result.problems


def test_another_width_is_told(target: Target) -> None:
    """The width that was assumed for other checks is compared with the one that crossed."""
    result = judged(lambda findings: judge_step(STEP, ASKED, changed(target, width=32), findings))
    assert (result.status, result.notes) == ("pass", ("activations are 64 wide, 32 was assumed: give --width 64",))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (at("predicted_token", value=3), "says token 3"),
        (at("stages", 1, "layer_start", value=4), "the report's stages is"),
        (lambda report: report["stages"].pop(), "the report's stages is"),
        (at("stages", 1, "forwarded_over_binary", value=False), "no stage passed activations on"),
        (at("stages", 2, "returned_predicted_token", value=False), "no stage returned a token"),
        (at("wire_dtype", value="q8"), "the report's wire is q8"),
    ],
)
def test_a_chain_that_does_not_count(edit: Edit, words: str, target: Target) -> None:
    """A chain that skipped a stage, or never used the wire, proves nothing."""
    result = judged(lambda findings: judge_chain(edited(CHAIN, edit), THREE, target, findings))
    assert any(words in problem for problem in result.problems), result.problems


def test_a_scan_counts_only_with_every_cut(target: Target) -> None:
    """No result, one too few, one too many, one twice, and a count that is not that of the results."""
    four, two = STEP, edited(STEP, at("split", "boundary", "layer_end", value=2))
    asked = [Step(stages=((0, 2), (2, 8)), wire="f32"), ASKED]
    for results in ([], [four], [two, four, four], [four, two]):
        report = collected("split-scan", results)
        result = judged(lambda findings, report=report: judge_scan(report, asked, target, findings))  # type: ignore[misc]
        assert result.status == "fail"
        assert "the report's cuts is" in result.problems[0]
    empty = judged(lambda findings: judge_scan(collected("split-scan", []), [], target, findings))
    assert empty.problems == ("nothing was compared",)
    lie = {**collected("split-scan", [four]), "mismatch_count": 1}
    assert judged(lambda findings: judge_scan(lie, [ASKED], target, findings)).status == "fail"


def matrix(target: Target, **wrong: int) -> LaneResult:
    """The result of a matrix in which some wires give another token."""
    results = []
    for wire in ("f32", "f16", "q8"):
        data = edited(STEP, at("split", "wire_dtype", value=wire))
        if wire in wrong:
            data["split"]["predicted_token"] = wrong[wire]
            data |= {"matches": False, "status": "fail"}
        results.append(data)
    asked = [changed(ASKED, wire=wire) for wire in ("f32", "f16", "q8")]
    return judged(lambda findings: judge_matrix(collected("dtype-matrix", results), asked, target, findings))


def test_a_matrix_is_judged_by_the_row(target: Target) -> None:
    """A type that the row requires must be equal; one that it rejects may differ, and both outcomes are noted."""
    assert target.family.wire._asdict() == {"f32": "required", "f16": "validated", "q8": "rejected"}
    assert matrix(target, q8=3).notes == ("q8 wire is rejected and changes the token",)
    assert matrix(target, q8=3).status == "pass"
    assert matrix(target).notes == ("q8 wire is rejected and gives the same token",)
    assert matrix(target, f16=3).problems == ("cut 4, f16 wire: the split model says token 3, the whole one 14",)
    assert matrix(target, f32=3).status == "fail"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (at("restored_predicted_token", value=3), "token 3 after the restore, 14 before it"),
        (at("predicted_token_matches", value=False), "predicted_token_matches is False"),
        (at("cache_hit_matches", value=False), "a repeated hit answers otherwise"),
        (at("suffix_prefill_matches", value=False), "a suffix after the restore"),
        (at("restored_output_matches", value=False), "gives other activations"),
        (at("roundtrip_state_matches", value=False), "exported again, has other bytes"),
        (at("matches", value=False), "says that it does not match, and not why"),
        (at("layer_end", value=30), "the report's layers is (0, 30)"),
        (at("state_payload_kind", value="full-state"), "the report's payload is full-state"),
        (at("prompt_token_count", value=1), "1 tokens were restored, 24 were asked for"),
        (at("cache_hit_repeats", value=1), "1 hits were tried, 3 were asked for"),
        (at("state_bytes", value=0), "the state that was handed over is empty"),
        (at("payload_digest", "kv_bytes", value=0), "0 KV bytes, the header predicts 49152"),
        (at("payload_digest", "recurrent_bytes", value=28), "28 recurrent bytes, the header predicts 0"),
    ],
)
def test_a_handoff_that_does_not_count(edit: Edit, words: str, target: Target) -> None:
    """Another token, other bytes, fewer tokens or hits than were asked for: a restore that was never used is none."""
    result = judged(lambda findings: judge_handoff(edited(HANDOFF, edit), STATE, target, findings))
    assert any(words in problem for problem in result.problems), result.problems


def test_a_comparison_that_was_not_made_is_not_counted(target: Target) -> None:
    """What a report leaves out is a note, and no comparison."""
    edit = at("suffix_prefill_matches", value=None)
    result = judged(lambda findings: judge_handoff(edited(HANDOFF, edit), STATE, target, findings))
    assert (result.status, result.comparisons) == ("pass", 6)
    assert result.notes == ("one-stage: suffix_prefill_matches was not compared",)


def test_recurrent_state_that_was_lost_is_seen_by_its_bytes(lab: Lab) -> None:
    """Zero recurrent bytes are what a hybrid gives that was taken for a dense model, though every token is equal."""
    target = lab.target("jamba")
    asked = changed(STATE, start=0, end=10, payload="kv-recurrent")
    predicted, whole = recurrent_bytes(target.header, range(10)), recurrent_bytes(target.header)
    kv = HANDOFF | {"state_payload_kind": "kv-recurrent", "layer_end": 10}

    def result(recurrent: int) -> LaneResult:
        data = edited(kv, at("payload_digest", "recurrent_bytes", value=recurrent))
        findings = Findings("prebuilt-test")
        judge_handoff(data, asked, target, findings)
        wrong = tuple(problem for problem in findings.problems if "recurrent" in problem)
        return changed(findings.result(""), problems=wrong)

    assert result(predicted).problems == ()
    assert result(0).problems == (f"one-stage: 0 recurrent bytes, the header predicts {predicted}",)
    assert result(whole).problems == ()
    assert f"all {whole} recurrent bytes of the model were handed over" in result(whole).notes[0]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (at("valid", value=False), "it is called invalid, and no issue says why"),
        (at("issue_count", value=2), "the report's issue_count is 2"),
        (at("manifest_sha256", value="c" * 64), "the report's manifest is"),
        (at("layer_count", value=30), "it has 30 layers, the model has 8"),
        (at("checked_artifact_count", value=0), "checked_artifact_count is 0"),
        (at("artifacts", 3, "present", value=False), "is missing, cut short, changed or was not hashed"),
        (
            at("artifacts", 3, "sha256_matches_manifest", value=False),
            "is missing, cut short, changed or was not hashed",
        ),
        (at("artifacts", 3, "sha256_matches_manifest", value=None), "is missing, cut short, changed or was not hashed"),
        (at("artifacts", 3, "layer_index", value=3), "not of each once"),
        (lambda report: report["artifacts"].pop(), "not of each once"),
        (at("stages", value=[]), "do not cover every layer once"),
        (at("stages", 1, "layer_start", value=5), "do not cover every layer once"),
        (at("stages", 1, "layer_end", value=7), "do not cover every layer once"),
        (at("stages", 0, "missing_parts", value=["layers/layer-002.gguf"]), "stage 0..4 lacks parts"),
        (at("stages", 0, "includes_embeddings", value=False), "lacks the embeddings"),
        (at("issues", value=[{"code": "x", "message": "y"}]), "package: x: y"),
    ],
)
def test_a_package_that_does_not_count(edit: Edit, words: str, target: Target) -> None:
    """A part that is missing, twice, changed or never hashed; stages with a hole; an issue, or one that is hidden."""
    result = judged(lambda findings: judge_preflight(edited(PREFLIGHT, edit), target, "b" * 64, findings))
    assert any(words in problem for problem in result.problems), result.problems
