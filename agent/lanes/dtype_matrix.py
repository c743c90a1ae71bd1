"""`dtype-matrix`: what f32, f16 and q8 wires do to tokens and logits, held against the row's wire policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent.engine.anatomy import Anatomy, Port
from agent.engine.stage import Frame
from agent.engine.transcript import Turn
from agent.engine.wire import F16_MAX, WireRange, WireType
from agent.lanes import single_step
from agent.lanes.agreement import Agreement
from agent.lanes.chained import cross, send
from agent.lanes.cuts import class_cuts
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

# largest error of a value as a share of the largest magnitude around it: half a step of the type; q8 has 254 steps over the
# range of a block, and its scale is an f16
_RESOLUTION = {WireType.F32: 0.0, WireType.F16: 2.0**-11, WireType.Q8: 1 / 254 + 2.0**-11}


@dataclass(frozen=True, kw_only=True)
class Params(single_step.Params):
    """`wires` are types of the wire; `cuts` is "all" or "classes". On a twin nothing is judged, and "classes" is enough."""

    wires: tuple[str, ...]
    cuts: str


@dataclass
class _Crossing:
    """What one wire type did over all cuts."""

    agreement: Agreement
    seen: WireRange
    changed_cuts: int = 0


def run(subject: Subject, params: Params) -> LaneResult:
    """Measure each wire type; f32 must be exact, the others what the row says of them (judged on real weights only)."""
    findings = Findings("dtype-matrix")
    contract, workload = subject.contract, params.workload
    every = params.cuts == "all" and not subject.expectations.random_weights
    cuts = contract.legal_cuts if every else class_cuts(contract, offsets=False)
    words = []
    for wire in map(WireType, params.wires):
        crossing = _cross(subject, workload, cuts, wire, findings)
        _judge(subject, wire, crossing, len(cuts), findings)
        agreement, seen = crossing.agreement, crossing.seen
        findings.measurements[wire] = {
            "cuts": len(cuts),
            "cuts_with_other_tokens": crossing.changed_cuts,
            "token_flips": agreement.token_flips,
            "max_error": agreement.max_error,
            "normalised_error": agreement.normalised_error,
            "peak_activation": seen.peak,
            "beyond_f16": seen.beyond_f16,
            "policy": getattr(subject.expectations.family.wire, wire),
        }
        words.append(
            f"{wire} {'exact' if agreement.exact else f'{crossing.changed_cuts}/{len(cuts)} cuts change tokens'}"
        )
    return findings.result(", ".join(words))


def _cross(
    subject: Subject, workload: Workload, cuts: tuple[int, ...], wire: WireType, findings: Findings
) -> _Crossing:
    anatomy, crossing = subject.anatomy(workload.micro_batch), _Crossing(Agreement(), WireRange())
    turns = subject.reference(workload).turns
    for cut in cuts:
        frames = []
        for turn in turns:
            ports = anatomy.ports(cut, len(turn.tokens))
            frames.append(send(subject, ports, turn.frames[cut], wire, crossing.seen))
            _check_codec(ports, turn.frames[cut], frames[-1], wire, cut, findings)
        agreement = (
            cross(subject, workload, cut)[0] if wire is WireType.F32 else _feed(subject, anatomy, cut, turns, frames)
        )
        crossing.agreement.add(agreement)
        crossing.changed_cuts += agreement.token_flips > 0 or not agreement.finite
    return crossing


def _feed(subject: Subject, anatomy: Anatomy, cut: int, turns: Sequence[Turn], frames: Sequence[Frame]) -> Agreement:
    agreement = Agreement()
    with subject.stage(anatomy, cut, subject.n_layer) as stage:
        for turn, frame in zip(turns, frames, strict=True):
            logits, _ = stage.decode(turn.tokens, turn.position, 0, frame)
            agreement.compare(turn.logits, logits, turn.position)
    return agreement


def _check_codec(
    ports: Sequence[Port], sent: Frame, arrived: Frame, wire: WireType, cut: int, findings: Findings
) -> None:
    for port, before, after in zip(ports, sent, arrived, strict=True):
        if port.dtype != "f32":
            continue
        values, received = before.view(np.float32), after.view(np.float32)
        peak = float(np.abs(values).max(initial=0.0))
        if peak > F16_MAX and wire is not WireType.F32:
            continue  # out of range: counted, and judged by its tokens
        error = float(np.abs(values - received).max(initial=0.0))
        # below 2^-14 an f16 loses relative precision: its step is 2^-24
        findings.expect(
            error <= _RESOLUTION[wire] * peak + (0.0 if wire is WireType.F32 else 2.0**-24),
            f"cut {cut}: {port.name} arrived over {wire} with an error of {error:.3g} at a peak of {peak:.3g}",
        )


def _judge(subject: Subject, wire: WireType, crossing: _Crossing, n_cuts: int, findings: Findings) -> None:
    agreement, policy = crossing.agreement, getattr(subject.expectations.family.wire, wire)
    findings.comparisons += agreement.positions
    if wire is WireType.F32:
        if not agreement.exact:
            findings.problems.append(f"f32 wire: {agreement.first}")
        return
    changed = crossing.changed_cuts > 0
    reach = f"activations reach {crossing.seen.peak:.4g}" + (
        f", {crossing.seen.beyond_f16} of {crossing.seen.values} beyond the f16 range of {F16_MAX:.0f}"
        if crossing.seen.beyond_f16
        else ""
    )
    if subject.expectations.random_weights:
        findings.notes.append(f"{wire} wire measured, not judged: random weights ({reach})")
    elif policy in ("required", "validated") and changed:
        findings.problems.append(
            f"{wire} wire is {policy}, but {crossing.changed_cuts} of {n_cuts} cuts change tokens ({reach})"
        )
    elif policy == "rejected":
        findings.notes.append(
            f"{wire} wire is rejected: {crossing.changed_cuts} of {n_cuts} cuts change tokens ({reach})"
            if changed
            else f"{wire} wire is rejected in the manifest, but no cut changes a token now ({reach})"
        )
    else:
        findings.notes.append(
            f"{wire} wire is {policy}: {crossing.changed_cuts} of {n_cuts} cuts change tokens ({reach})"
        )
