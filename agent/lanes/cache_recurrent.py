"""`cache-recurrent`: KV pages and recurrent state, restored elsewhere, give what a cold prefill gives; their bytes are those
that the header predicts."""

from __future__ import annotations

from agent.engine.session import PARTIAL_STATE
from agent.header.state_size import recurrent_bytes
from agent.lanes.cache_resident import Params
from agent.lanes.restored import RECORDED, check_restore, through_bytes, topologies
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject

__all__ = ["Params", "run"]


def run(subject: Subject, params: Params) -> LaneResult:
    """Restore in every topology, decode at once and after a suffix; count the bytes."""
    findings = Findings("cache-recurrent")
    chosen = topologies(subject)
    for workload in params.workloads():
        for topology in chosen:
            check_restore(subject, workload, topology, through_bytes, params.hit_repeats, findings)
    _check_bytes(subject, params, findings)
    findings.measurements |= {"topologies": [topology.name for topology in chosen], "hits": params.hit_repeats}
    return findings.result(
        f"{len(chosen)} topologies, {params.hit_repeats} hits each; {findings.measurements['recurrent_bytes']} recurrent bytes"
    )


def _check_bytes(subject: Subject, params: Params, findings: Findings) -> None:
    workload = params.workloads()[0]
    anatomy = subject.anatomy(workload.micro_batch)
    with subject.stage(anatomy, 0, subject.n_layer) as whole:
        whole.decode(workload.prompt(subject.model.facts.n_vocab)[0], 0, RECORDED)
        total = len(whole.session.export_state(RECORDED))
        recurrent = len(whole.session.export_state(RECORDED, PARTIAL_STATE))
    predicted = recurrent_bytes(subject.header)
    findings.expect(recurrent > 0, "no recurrent bytes were exported")
    findings.expect(recurrent == predicted, f"{recurrent} recurrent bytes exported, the header predicts {predicted}")
    attention = sum(not subject.contract.recurrent_in(layer, layer + 1) for layer in range(subject.n_layer))
    has_attention = attention > 0 or any(kind == "AR" for kind in subject.contract.state)
    if has_attention:
        findings.expect(
            total > recurrent, f"a model with attention exported no KV bytes beside {recurrent} recurrent ones"
        )
    else:
        findings.expect(total == recurrent, f"a purely recurrent model exported {total - recurrent} KV bytes")
    findings.measurements |= {"state_bytes": total, "recurrent_bytes": recurrent, "kv_bytes": total - recurrent}
