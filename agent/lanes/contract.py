"""`contract`: what crosses each cut and which cuts are illegal, and whether that is what was recorded for the architecture.

A twin is also asked for its answer, which must be the recorded one: whole and split can be wrong together, and then everything
else agrees.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.contracts import RecordedContract, describe
from agent.lanes.answer import WORKLOAD, answer_of, differences
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject
from agent.layer_kind import LayerKind


@dataclass(frozen=True, kw_only=True)
class Params:
    """This lane has none."""


def run(subject: Subject, _params: Params) -> LaneResult:
    """Derive the contract from the graphs of a prefill and of a decode (they must agree) and compare it with the record."""
    findings = Findings("contract")
    contract = subject.contract
    for layer, kind in enumerate(contract.state):
        findings.expect(
            kind is not LayerKind.UNKNOWN,
            f"layer {layer} keeps a state of an unknown kind: {', '.join(contract.caches[layer])}",
        )
    for cut in contract.cuts:
        findings.expect(
            bool(cut.frontier) or bool(cut.forbidden_by),
            f"nothing crosses cut {cut.layer}: the graph was not understood",
        )
        if cut.forbidden_by:
            findings.notes.append(f"cut {cut.layer} is illegal: layers above read {', '.join(cut.forbidden_by)}")

    now = describe(contract)
    recorded = subject.expectations.recorded
    if recorded is None:
        findings.problems.append(
            f"no contract is recorded for {subject.header.architecture}: run `skippy-agent record-contracts "
            f"{subject.expectations.family.family}` and review what it writes"
        )
    else:
        for line in _differences(recorded, now):
            findings.problems.append(line)
        findings.comparisons += 1
        _compare_answer(findings, subject, recorded)
    findings.measurements |= {
        "frontier": list(now.frontier),
        "tokens": now.tokens,
        "illegal_cuts": len(contract.cuts) - len(contract.legal_cuts),
    }
    return findings.result(f"{' + '.join(now.frontier)}{' + token ids' if now.tokens else ''}")


def _compare_answer(findings: Findings, subject: Subject, recorded: RecordedContract) -> None:
    twin = subject.expectations.twin
    if not twin:
        return
    if not subject.model.device.is_cpu:
        findings.notes.append(
            "answers are recorded on the CPU; what this device says is compared with it by `backend-parity`"
        )
        return
    answer = recorded.answers.get(twin)
    if answer is None:
        findings.problems.append(
            f"no answer is recorded for the twin {twin}: run `skippy-agent record-contracts "
            f"{subject.expectations.family.family}` and review what it writes"
        )
        return
    found = list(differences(answer, answer_of(subject.reference(WORKLOAD))))
    findings.expect(not found, "; ".join(found))


def _differences(recorded: RecordedContract, now: RecordedContract) -> list[str]:
    lines: list[str] = []
    lines += [f"{crossing} no longer crosses a cut" for crossing in sorted({*recorded.frontier} - {*now.frontier})]
    lines += [f"{crossing} now crosses a cut" for crossing in sorted({*now.frontier} - {*recorded.frontier})]
    if recorded.tokens != now.tokens:
        lines.append(f"token ids {'now' if now.tokens else 'no longer'} cross")
    if recorded.caches != now.caches:
        lines.append(f"caches were {', '.join(recorded.caches)} and are {', '.join(now.caches)}")
    if recorded.shared_state != now.shared_state:
        lines.append(
            f"layers {'now' if now.shared_state else 'no longer'} read the caches of layers below, which forbids cuts"
        )
    return lines
