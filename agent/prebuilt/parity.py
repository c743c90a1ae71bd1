"""The product's own parity checks: two stages, three, many cuts, wire types. Each compares one token with the whole model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import NoLegalCut
from agent.lanes.cuts import class_cuts, middle_cut, third_cuts
from agent.lanes.result import Findings, LaneResult
from agent.prebuilt.adapter import Options
from agent.prebuilt.ending import conclude
from agent.prebuilt.judge import Step, judge_chain, judge_matrix, judge_scan, judge_step
from agent.prebuilt.report import Report
from agent.prebuilt.runs import run_correctness
from agent.prebuilt.target import Bench, Target

_WIRE = "--activation-wire-dtype"
_EXACT = "f32"  # the only type under which a split model has to be equal
WIRES = ("f32", "f16", "q8")


def two_stages(target: Target, cut: int, wire: str | None, **how: Any) -> Step:
    """A split into two."""
    return Step(stages=((0, cut), (cut, target.layers)), wire=wire, **how)


def exact_wire(bench: Bench) -> str | None:
    """The wire's type for checks that must be exact; None where it cannot be chosen."""
    return _EXACT if bench.dialect.wires else None


def wire_options(bench: Bench) -> Options:
    """The flag that chooses it."""
    return {_WIRE: _EXACT} if bench.dialect.wires else {}


def check_single_step(bench: Bench, target: Target, lane: str) -> LaneResult:
    """Two stages, cut in the middle."""
    cut = middle_cut(target.contract)
    asked = two_stages(target, cut, exact_wire(bench))
    return _check(
        bench, target, lane, "single-step", {"--split-layer": cut, **wire_options(bench)}, 1,
        lambda report, findings: judge_step(report, asked, target, findings), f"cut at {cut}: the same token",
    )  # fmt: skip


def check_chain(bench: Bench, target: Target, lane: str) -> LaneResult:
    """Three stages, cut at the thirds."""
    cuts = third_cuts(target.contract)
    if cuts is None:
        raise NoLegalCut("the model has not two places where it may be cut, so there is no chain of three stages")
    first, second = cuts
    asked = Step(stages=((0, first), (first, second), (second, target.layers)), wire=exact_wire(bench))
    return _check(
        bench, target, lane, "chain", {"--splits": f"{first},{second}", **wire_options(bench)}, 2,
        lambda report, findings: judge_chain(report, asked, target, findings),
        f"cut at {first} and {second}: the same token",
    )  # fmt: skip


def check_scan(bench: Bench, target: Target, lane: str) -> LaneResult:
    """Two stages, at every class of cut."""
    cuts = class_cuts(target.contract)
    if not cuts:
        raise NoLegalCut("the model may be cut nowhere")
    asked = [two_stages(target, cut, exact_wire(bench)) for cut in cuts]
    return _check(
        bench, target, lane, "split-scan", {"--splits": ",".join(map(str, cuts)), **wire_options(bench)}, 1,
        lambda report, findings: judge_scan(report, asked, target, findings),
        f"{len(cuts)} of {len(target.contract.legal_cuts)} legal cuts: the same token at each",
    )  # fmt: skip


def check_matrix(bench: Bench, target: Target, lane: str) -> LaneResult:
    """Every wire type at one cut; the family's row says which of them must be equal."""
    cut = middle_cut(target.contract)
    asked = [two_stages(target, cut, wire) for wire in WIRES]
    options: Mapping[str, Any] = {"--split-layer": cut, "--dtypes": ",".join(WIRES)}
    return _check(
        bench, target, lane, "dtype-matrix", options, 1,
        lambda report, findings: judge_matrix(report, asked, target, findings),
        f"cut at {cut}: {', '.join(WIRES)} as the row wants it", allow_mismatch=True,
    )  # fmt: skip


def _check(
    bench: Bench,
    target: Target,
    lane: str,
    command: str,
    options: Options,
    ports: int,
    judge: Callable[[Report, Findings], object],
    summary: str,
    *,
    allow_mismatch: bool = False,
) -> LaneResult:
    """Run a command and judge its report; `ports` is the number of stage servers that it starts."""
    findings = Findings(lane)
    flags = [f"--stage{number}-bind-addr" for number in range(1, ports + 1)]
    run = run_correctness(bench, target, command, options, ports=flags, kept=(lane,), allow_mismatch=allow_mismatch)
    findings.measurements["run"] = run.describe()
    if run.report is not None:
        judge(run.report, findings)
    return conclude(findings, [run.trouble] if run.trouble else [], summary)
