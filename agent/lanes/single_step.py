"""`single-step`: two stages at the middle cut, run live, say what the whole model says, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

from agent.lanes.chained import run_chain
from agent.lanes.cuts import middle_cut
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Params:
    """Sizes of the run; see `manifests/batteries.json`."""

    prompt_tokens: int
    micro_batch: int
    decode_steps: int

    @property
    def workload(self) -> Workload:
        """The run that they describe."""
        return Workload(segments=(self.prompt_tokens,), decode_steps=self.decode_steps, micro_batch=self.micro_batch)


def run(subject: Subject, params: Params) -> LaneResult:
    """Compare two stages with none."""
    cut = middle_cut(subject.contract)
    return check_chain("single-step", subject, params.workload, (cut,))


def check_chain(lane: str, subject: Subject, workload: Workload, cuts: tuple[int, ...]) -> LaneResult:
    """Run the stages that `cuts` make and apply the pass rule: every logit of every position equal bit for bit."""
    findings = Findings(lane)
    agreement, carried = run_chain(subject, workload, cuts)
    generated = subject.reference(workload).generated
    findings.comparisons += agreement.positions
    where = ", ".join(map(str, cuts))
    if not agreement.exact:
        findings.problems.append(f"split at {where}: {agreement.first or 'nothing was compared'}")
    findings.expect(carried, f"split at {where}: the wire brought nothing that the next stage did not have already")
    findings.measurements |= {
        "cuts": list(cuts),
        "positions": agreement.positions,
        "identical": agreement.identical,
        "tokens_equal": agreement.token_flips == 0,
        "max_error": agreement.max_error,
        "generated": list(generated),
    }
    return findings.result(f"split at {where}: {agreement.positions} positions equal bit for bit")
