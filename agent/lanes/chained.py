"""A model split into stages that run live, one after the other, as on several machines."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from agent.engine.anatomy import Port
from agent.engine.stage import Bytes, Frame, Stage
from agent.engine.wire import WireRange, WireType
from agent.lanes.agreement import Agreement
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload


def run_chain(subject: Subject, workload: Workload, cuts: Sequence[int]) -> tuple[Agreement, bool]:
    """Run `workload` over the stages that `cuts` make and compare the last one's logits with the whole model's.

    The reference's greedy tokens are fed, so that one difference does not hide the next.

    Returns:
        The agreement, and whether every frame brought the next stage something that it did not have.
    """
    anatomy = subject.anatomy(workload.micro_batch)
    ends = (*cuts, subject.n_layer)
    agreement = Agreement()
    with contextlib.ExitStack() as stack:
        stages = [
            stack.enter_context(subject.stage(anatomy, start, end)) for start, end in zip((0, *cuts), ends, strict=True)
        ]
        for turn in subject.reference(workload).turns:
            frame: Frame | None = None
            logits = None
            for stage in stages:
                leaving = () if stage.end == subject.n_layer else (stage.end,)
                logits, frames = stage.decode(turn.tokens, turn.position, 0, frame, leaving)
                if leaving:
                    frame = send(subject, anatomy.ports(stage.end, len(turn.tokens)), frames[stage.end], WireType.F32)
            if logits is not None:
                agreement.compare(turn.logits, logits, turn.position)
        return agreement, all(brought_something(stage) for stage in stages[1:])


def cross(subject: Subject, workload: Workload, cut: int) -> tuple[Agreement, bool]:
    """The upper stage of one cut, fed over an f32 wire with the frames of the reference.

    Several lanes look at the same crossing, which is run once for a subject.

    Returns:
        The agreement, and whether the wire brought the stage something that it did not have.
    """
    if (workload, cut) not in subject.crossings:
        anatomy, agreement = subject.anatomy(workload.micro_batch), Agreement()
        with subject.stage(anatomy, cut, subject.n_layer) as stage:
            for turn in subject.reference(workload).turns:
                frame = send(subject, anatomy.ports(cut, len(turn.tokens)), turn.frames[cut], WireType.F32)
                logits, _ = stage.decode(turn.tokens, turn.position, 0, frame)
                agreement.compare(turn.logits, logits, turn.position)
            subject.crossings[workload, cut] = agreement, brought_something(stage)
    return subject.crossings[workload, cut]


def brought_something(stage: Stage) -> bool:
    """True if the wire changed what the stage had: a stage that knew it already proves nothing."""
    return stage.written > stage.unchanged


def send(subject: Subject, ports: Sequence[Port], frame: Frame, wire: WireType, seen: WireRange | None = None) -> Frame:
    """Carry a frame over the wire. Tensors that are not f32 activations travel as they are."""
    return tuple(
        _send_one(subject, data, wire, seen) if port.dtype == "f32" else data
        for port, data in zip(ports, frame, strict=True)
    )


def _send_one(subject: Subject, data: Bytes, wire: WireType, seen: WireRange | None) -> Bytes:
    values = data.view(np.float32)
    if seen is not None:
        seen.see(values)
    return np.ascontiguousarray(subject.carry(values, wire)).view(np.uint8)
