"""`boundary-sweep`: every cut (or one of every class) gives the bits of the whole model."""

from __future__ import annotations

from dataclasses import dataclass

from agent.lanes import single_step
from agent.lanes.chained import cross, run_chain
from agent.lanes.cuts import class_cuts, single_kind_stages
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Params(single_step.Params):
    """`cuts` is "all", or "classes" for one cut of every class."""

    cuts: str


def run(subject: Subject, params: Params) -> LaneResult:
    """Feed the upper stage of each cut with the reference's frames and compare its logits."""
    findings = Findings("boundary-sweep")
    contract, workload = subject.contract, params.workload
    cuts = contract.legal_cuts if params.cuts == "all" else class_cuts(contract)
    exact = 0
    for cut in cuts:
        agreement, carried = cross(subject, workload, cut)
        findings.comparisons += agreement.positions
        exact += agreement.exact
        if not agreement.exact:
            findings.problems.append(f"cut {cut}: {agreement.first}")
        findings.expect(carried, f"cut {cut}: the wire brought nothing that the stage did not have already")
    stages = single_kind_stages(contract)
    for start, end in stages:
        agreement, _ = run_chain(subject, workload, (start, end))
        findings.comparisons += agreement.positions
        if not agreement.exact:
            findings.problems.append(f"stage [{start}, {end}) of {contract.state[start]} alone: {agreement.first}")
    findings.measurements |= {
        "cuts": list(cuts),
        "exact": exact,
        "illegal": [cut.layer for cut in contract.cuts if not cut.legal],
        "single_kind_stages": [list(stage) for stage in stages],
    }
    return findings.result(f"{exact} of {len(cuts)} cuts equal bit for bit")
