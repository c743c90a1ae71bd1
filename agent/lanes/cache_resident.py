"""`cache-resident`: a prefix recorded in one sequence and borrowed by another gives what a cold prefill gives."""

from __future__ import annotations

from dataclasses import dataclass

from agent.lanes import state_handoff
from agent.lanes.restored import by_borrowing, check_restore, topologies
from agent.lanes.result import Findings, LaneResult
from agent.lanes.state_bytes import check_state_bytes
from agent.lanes.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Params(state_handoff.Params):
    """`hit_repeats`: how often the same prefix is borrowed."""

    hit_repeats: int


def run(subject: Subject, params: Params) -> LaneResult:
    """Borrow in every topology, decode at once and after a suffix."""
    findings = Findings("cache-resident")
    chosen = topologies(subject)
    for workload in params.workloads():
        for topology in chosen:
            check_restore(subject, workload, topology, by_borrowing, params.hit_repeats, findings)
    check_state_bytes(subject, params.micro_batch, findings)
    findings.measurements |= {"topologies": [topology.name for topology in chosen], "hits": params.hit_repeats}
    return findings.result(f"{len(chosen)} topologies, {params.hit_repeats} hits each, equal to a cold prefill")
