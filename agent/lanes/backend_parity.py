"""`backend-parity`: the accelerator of the leg says what the CPU says, within a bound on the normalised error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agent.engine.anatomy import Anatomy
from agent.engine.session import Session
from agent.engine.stage import Stage
from agent.engine.transcript import Transcript, transcribe
from agent.lanes import single_step
from agent.lanes.agreement import Agreement
from agent.lanes.result import Findings, LaneResult, Status
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

_LANE = "backend-parity"


@dataclass(frozen=True, kw_only=True)
class Params(single_step.Params):
    """`max_nmse` bounds the normalised mean squared error of the logits of a position."""

    max_nmse: float


def run(subject: Subject, params: Params) -> LaneResult:
    """Decode the CPU's tokens on the device and compare the logits of every position."""
    device = subject.model.device
    if device.is_cpu:
        reason = f"the leg's device is {device.name}, which is what an accelerator is compared with"
        return LaneResult(lane=_LANE, status=Status.NOT_APPLICABLE, comparisons=0, summary=reason, problems=(reason,))
    findings, workload = Findings(_LANE), params.workload
    shape = subject.shape(workload.micro_batch)
    with subject.load_on_cpu() as cpu:
        anatomy = Anatomy(cpu, shape)
        _check_places(device.name, nodes_of(subject.anatomy(workload.micro_batch)), nodes_of(anatomy), findings)
        if findings.problems:
            return findings.result("")
        reference = _reference(anatomy, workload)
    agreement = Agreement()
    with subject.session(shape) as session:
        for turn in reference.turns:
            agreement.compare(turn.logits, session.decode(turn.tokens, turn.position), turn.position)
    return _judge(subject, params, agreement, findings)


def nodes_of(anatomy: Anatomy) -> Mapping[str, int]:
    """How many nodes of a decode of one token ran on which device."""
    return dict(anatomy.step(1).devices)


def _check_places(device: str, there: Mapping[str, int], here: Mapping[str, int], findings: Findings) -> None:
    """Two runs on one device agree and say nothing, so it must be seen where each of them ran."""
    findings.expect(
        2 * there.get(device, 0) > sum(there.values()), f"most nodes did not run on {device}: {_words(there)}"
    )
    findings.expect(not here.get(device), f"the CPU's run used {device}: {_words(here)}")
    elsewhere = {name: count for name, count in there.items() if name != device}
    if elsewhere:
        findings.notes.append(f"of {sum(there.values())} nodes some ran elsewhere: {_words(elsewhere)}")
    findings.measurements["nodes_by_device"] = dict(there)


def _words(nodes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} on {name}" for name, count in nodes.items()) or "none"


def _reference(anatomy: Anatomy, workload: Workload) -> Transcript:
    facts = anatomy.model.facts
    with Stage(anatomy, Session(anatomy.model, anatomy.shape), 0, facts.n_layer) as whole:
        return transcribe(whole, workload.prompt(facts.n_vocab), workload.decode_steps)


def _judge(subject: Subject, params: Params, agreement: Agreement, findings: Findings) -> LaneResult:
    """Hold the worst position to the bound; the median one where rounding may tip a choice and move one position far.

    That is where the model selects experts or cells, or where its weights are quantised: a wrong kernel moves most positions.
    """
    findings.comparisons += agreement.positions
    if not agreement.finite or not agreement.positions:
        findings.problems.append(agreement.first or "no position was compared")
        return findings.result("")
    robust = subject.selects or not subject.expectations.random_weights
    errors = np.square(agreement.position_errors)
    judged = float(np.median(errors) if robust else errors.max())
    device = subject.model.device.name
    findings.expect(
        judged <= params.max_nmse,
        f"{device} against the CPU: the {'median' if robust else 'largest'} normalised mean squared error of a position is "
        f"{judged:.3g}, above {params.max_nmse:g}; {agreement.first}",
    )
    agreeing = agreement.positions - agreement.token_flips
    findings.measurements |= {
        "positions": agreement.positions,
        "identical": agreement.identical,
        "tokens_equal": agreeing,
        "nmse": float(np.square(agreement.normalised_error)),
        "median_nmse": float(np.median(errors)),
        "worst_nmse": float(errors.max()),
        "max_error": agreement.max_error,
    }
    return findings.result(
        f"{device} against the CPU: error {judged:.1e}, {agreeing} of {agreement.positions} greedy tokens equal"
    )
