"""A stage whose state comes from a cache: recorded in one session and sequence, restored or borrowed in another.

The stage is fed with the frames of the reference and what it hands on is compared with the reference, so that each of the
four topologies (one-stage, split-first, split-middle, split-final) looks at the state of that stage alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.engine.session import Logits
from agent.engine.stage import Frame, Stage
from agent.engine.transcript import Turn
from agent.lanes.agreement import Agreement, frames_equal
from agent.lanes.cuts import third_cuts
from agent.lanes.result import Findings
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

RECORDED = 0  # sequence in which a prefix is recorded
_TARGETS = (1, 2)  # sequences in which it is restored, in turn


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Which layers the restored stage owns."""

    name: str
    start: int
    end: int


def topologies(subject: Subject) -> tuple[Topology, ...]:
    """The whole model, and the first, the middle and the last of three stages where it can be cut twice."""
    n_layer = subject.n_layer
    found = [Topology(name="one-stage", start=0, end=n_layer)]
    thirds = third_cuts(subject.contract) if subject.contract.legal_cuts else None
    if thirds:
        first, second = thirds
        found += [
            Topology(name="split-first", start=0, end=first),
            Topology(name="split-middle", start=first, end=second),
            Topology(name="split-final", start=second, end=n_layer),
        ]
    return tuple(found)


# Brings the state that a stage holds in RECORDED into a sequence, and returns the stage that has it now.
Restore = Callable[[int], Stage]
# Opens what restores the state of `recorded`.
Transfer = Callable[[Subject, Stage], contextlib.AbstractContextManager[Restore]]


@contextlib.contextmanager
def through_bytes(subject: Subject, recorded: Stage) -> Iterator[Restore]:
    """Export the state and import it into another session, which begins empty and then holds what earlier hits left."""
    with subject.stage(recorded.anatomy, recorded.start, recorded.end) as other:

        def restore(target: int) -> Stage:
            other.session.remove_sequence(target)
            other.session.import_state(recorded.session.export_state(RECORDED), target)
            return other

        yield restore


@contextlib.contextmanager
def by_borrowing(_subject: Subject, recorded: Stage) -> Iterator[Restore]:
    """Let another sequence of the same session share the cells: a resident hit."""

    def restore(target: int) -> Stage:
        recorded.session.remove_sequence(target)
        recorded.session.copy_sequence(RECORDED, target)
        return recorded

    yield restore


def check_restore(
    subject: Subject, workload: Workload, topology: Topology, transfer: Transfer, hits: int, findings: Findings
) -> None:
    """Record the first segment of `workload`, then `hits` times continue from it elsewhere and compare with the reference."""
    turns = subject.reference(workload).turns
    recorded_turn, continued = turns[0], turns[1:]
    anatomy = subject.anatomy(workload.micro_batch)
    with (
        subject.stage(anatomy, topology.start, topology.end) as recorded,
        transfer(subject, recorded) as restore,
    ):
        _feed(subject, recorded, recorded_turn, RECORDED)
        for hit in range(hits):
            target = _TARGETS[hit % len(_TARGETS)]
            stage = restore(target)
            place = f"{topology.name}, hit {hit + 1}, sequence {RECORDED} to {target}"
            last = stage.session.last_position(target)
            expected = len(recorded_turn.tokens) - 1
            findings.expect(last == expected, f"{place}: memory ends at position {last} instead of {expected}")
            _continue(subject, stage, continued, target, place, findings)


def _continue(
    subject: Subject, stage: Stage, turns: tuple[Turn, ...], sequence: int, place: str, findings: Findings
) -> None:
    if stage.end == subject.n_layer:
        agreement = Agreement()
        for turn in turns:
            agreement.compare(turn.logits, _feed(subject, stage, turn, sequence)[0], turn.position)
        findings.comparisons += agreement.positions
        if not agreement.exact:
            findings.problems.append(f"{place}: {agreement.first}")
        return
    for turn in turns:
        frame = _feed(subject, stage, turn, sequence)[1][stage.end]
        if not findings.expect(
            frames_equal(turn.frames[stage.end], frame),
            f"{place}: what leaves at cut {stage.end} differs at position {turn.position}",
        ):
            return


def _feed(subject: Subject, stage: Stage, turn: Turn, sequence: int) -> tuple[Logits, dict[int, Frame]]:
    arriving = turn.frames[stage.start] if stage.start else None
    leaving = () if stage.end == subject.n_layer else (stage.end,)
    return stage.decode(turn.tokens, turn.position, sequence, arriving, leaving)
