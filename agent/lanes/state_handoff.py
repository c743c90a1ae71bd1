"""`state-handoff`: a whole state, exported and imported into another session and sequence, goes on exactly."""

from __future__ import annotations

from dataclasses import dataclass

from agent.lanes.restored import check_restore, through_bytes, topologies
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Params:
    """Sizes of the run; see `manifests/batteries.json`."""

    prefix_tokens: int
    suffix_tokens: int
    micro_batch: int
    decode_steps: int

    def workloads(self) -> tuple[Workload, Workload]:
        """What follows the restored prefix: greedy decoding at once, or a suffix prefill first."""
        at_once = Workload(segments=(self.prefix_tokens,), decode_steps=self.decode_steps, micro_batch=self.micro_batch)
        suffix = Workload(
            segments=(self.prefix_tokens, self.suffix_tokens),
            decode_steps=self.decode_steps,
            micro_batch=self.micro_batch,
        )
        return at_once, suffix


def run(subject: Subject, params: Params) -> LaneResult:
    """Hand the state of the whole model and of the last stage over once."""
    findings = Findings("state-handoff")
    chosen = [topology for topology in topologies(subject) if topology.end == subject.n_layer]
    for workload in params.workloads():
        for topology in chosen:
            check_restore(subject, workload, topology, through_bytes, 1, findings)
    policy = subject.expectations.family.exact_state
    if policy not in ("accepted", "untested"):
        findings.notes.append(f"the row says {policy}; here the whole state was handed over")
    findings.measurements["topologies"] = [topology.name for topology in chosen]
    return findings.result(f"{findings.comparisons} comparisons over {len(chosen)} topologies")
