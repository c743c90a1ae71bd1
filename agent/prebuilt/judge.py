"""What the reports of parity checks must say. Their own `matches` is a field like every other: tokens are compared again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.lanes.result import Findings
from agent.prebuilt.report import Report
from agent.prebuilt.target import Target

REQUIRED = ("required", "validated")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A split that was asked for: the stages as [start, end), the wire's type (None where it is always f32), the load mode."""

    stages: tuple[tuple[int, int], ...]
    wire: str | None
    load_mode: str = "runtime-slice"
    manifest_sha256: str | None = None

    @property
    def cuts(self) -> tuple[int, ...]:
        """Where it is cut."""
        return tuple(end for _, end in self.stages[:-1])


def judge_step(
    report: Report, asked: Step, target: Target, findings: Findings, *, mismatch_allowed: bool = False
) -> bool:
    """Judge a `single-step` report; returns whether the tokens are equal. A mismatch that is allowed is no problem."""
    place = f"cut {asked.cuts[0]}" + (f", {asked.wire} wire" if asked.wire else "")
    split = report["split"]
    boundary = split["boundary"]
    same(findings, f"{place}: the report's cut", boundary["layer_end"], asked.cuts[0])
    if asked.wire:
        same(findings, f"{place}: the report's wire", split.get("wire_dtype"), asked.wire)
    if not boundary["payload_bytes"] or not boundary["wire_payload_bytes"] or not boundary["token_count"]:
        findings.problems.append(f"{place}: nothing crossed the cut")
    _judge_stage_models(report, asked, findings, place)
    _note_width(split["activation_width"], target, findings)
    return _judge_tokens(report, split["predicted_token"], split["token_id"], target, findings, place, mismatch_allowed)


def judge_chain(report: Report, asked: Step, target: Target, findings: Findings) -> None:
    """Judge a `chain` report: every stage ran its own layers, all but the last passed activations on, the last one answered."""
    place = f"cuts {', '.join(map(str, asked.cuts))}"
    stages = sorted(report["stages"], key=lambda stage: int(stage["stage_index"]))
    ranges = tuple((stage["layer_start"], stage["layer_end"]) for stage in stages)
    same(findings, f"{place}: the report's stages", ranges, asked.stages)
    if asked.wire:
        same(findings, f"{place}: the report's wire", report.get("wire_dtype"), asked.wire)
    if not any(stage["forwarded_over_binary"] for stage in stages):
        findings.problems.append(f"{place}: no stage passed activations on to another server")
    if not any(stage["returned_predicted_token"] for stage in stages):
        findings.problems.append(f"{place}: no stage returned a token")
    _judge_stage_models(report, asked, findings, place)
    _note_width(report["activation_width"], target, findings)
    _judge_tokens(
        report, report["predicted_token"], report["token_id"], target, findings, place, mismatch_allowed=False
    )


def judge_scan(report: Report, asked: Sequence[Step], target: Target, findings: Findings) -> None:
    """Judge a `split-scan` report: each cut that was asked for is there once, in order."""
    results = report["results"]
    found = [result["split"]["boundary"]["layer_end"] for result in results]
    same(findings, "the report's cuts", found, [step.cuts[0] for step in asked])
    same(findings, "the report's split_count", report["split_count"], len(results))
    by_cut = {step.cuts[0]: step for step in asked}
    wrong = 0
    for result in results:
        step = by_cut.get(result["split"]["boundary"]["layer_end"])
        if step is not None:
            wrong += not judge_step(result, step, target, findings)
    same(findings, "the report's mismatch_count", report["mismatch_count"], wrong)


def judge_matrix(report: Report, asked: Sequence[Step], target: Target, findings: Findings) -> None:
    """Judge a `dtype-matrix` report by the wire policy of the family's row."""
    results = report["results"]
    found = [result["split"].get("wire_dtype") for result in results]
    same(findings, "the report's wire types", found, [step.wire for step in asked])
    same(findings, "the report's dtype_count", report["dtype_count"], len(results))
    by_wire = {step.wire: step for step in asked}
    policy = target.family.wire._asdict()
    wrong = 0
    for result in results:
        wire = result["split"].get("wire_dtype")
        if wire not in by_wire:
            continue
        owed = policy[wire] in REQUIRED
        equal = judge_step(result, by_wire[wire], target, findings, mismatch_allowed=not owed)
        wrong += not equal
        findings.measurements.setdefault("wires", {})[wire] = "equal" if equal else "differs"
        if not owed:
            words = "gives the same token" if equal else "changes the token"
            findings.notes.append(f"{wire} wire is {policy[wire]} and {words}")
    same(findings, "the report's mismatch_count", report["mismatch_count"], wrong)


def _judge_tokens(
    report: Report, predicted: int, token: int, target: Target, findings: Findings, place: str, mismatch_allowed: bool
) -> bool:
    baseline = report["baseline"]
    equal = bool(baseline["predicted_token"] == predicted)
    findings.expect(
        equal or mismatch_allowed,
        f"{place}: the split model says token {predicted}, the whole one {baseline['predicted_token']}",
    )
    same(findings, f"{place}: the token that both were given", token, baseline["token_id"])
    check_token(baseline["predicted_token"], target, findings, place)
    same(findings, f"{place}: the report's matches", report["matches"], equal)
    same(findings, f"{place}: the report's status", report["status"], "pass" if equal else "fail")
    return equal


def check_token(token: int, target: Target, findings: Findings, place: str) -> None:
    """A token that no vocabulary has is the answer of a model that computed nothing, or only NaN."""
    if token < 0 or (target.vocabulary is not None and token >= target.vocabulary):
        findings.problems.append(f"{place}: {token} is no token of this model")


def _judge_stage_models(report: Report, asked: Step, findings: Findings, place: str) -> None:
    found = report["stage_models"]
    if not found:
        findings.problems.append(f"{place}: the report names no stage, so nobody knows what ran")
    for stage in found:
        layers = (stage["layer_start"], stage["layer_end"])
        if layers not in asked.stages:
            findings.problems.append(f"{place}: a stage ran layers {layers[0]}..{layers[1]}, which nobody asked for")
        same(findings, f"{place}: the load mode of {layers[0]}..{layers[1]}", stage["load_mode"], asked.load_mode)
        package = stage.get("package")
        if asked.manifest_sha256:
            given = package["manifest_sha256"] if package else None
            same(findings, f"{place}: the package of {layers[0]}..{layers[1]}", given, asked.manifest_sha256)


def _note_width(found: int, target: Target, findings: Findings) -> None:
    note = f"activations are {found} wide, {target.width} was assumed: give --width {found}"
    if found != target.width and note not in findings.notes:
        findings.notes.append(note)


def same(findings: Findings, what: str, found: object, wanted: object) -> None:
    """A report that is not about what was asked proves nothing; that it is counts as no comparison."""
    if found != wanted:
        findings.problems.append(f"{what} is {found}, it should be {wanted}")
