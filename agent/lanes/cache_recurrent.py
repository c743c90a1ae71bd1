"""`cache-recurrent`: KV pages and recurrent state, restored elsewhere, give what a cold prefill gives; their bytes are those
that the header predicts."""

from __future__ import annotations

from agent.lanes.cache_resident import Params
from agent.lanes.restored import check_restore, through_bytes, topologies
from agent.lanes.result import Findings, LaneResult
from agent.lanes.state_bytes import check_state_bytes
from agent.lanes.subject import Subject

__all__ = ["Params", "run"]


def run(subject: Subject, params: Params) -> LaneResult:
    """Restore in every topology, decode at once and after a suffix; count the bytes."""
    findings = Findings("cache-recurrent")
    chosen = topologies(subject)
    for workload in params.workloads():
        for topology in chosen:
            check_restore(subject, workload, topology, through_bytes, params.hit_repeats, findings)
    check_state_bytes(subject, params.micro_batch, findings)
    counted = findings.measurements.get("recurrent_bytes", 0)
    findings.expect(counted > 0, "no layer of the graph is known to keep recurrent state, so none of it was counted")
    findings.measurements |= {"topologies": [topology.name for topology in chosen], "hits": params.hit_repeats}
    return findings.result(f"{len(chosen)} topologies, {params.hit_repeats} hits each; {counted} recurrent bytes")
