"""How a program's end is read: what its exit code, its signal, its stages and its leftovers say, and never the words of its log.
They decide only whether a run that said nothing about the model is worth another try.

The product's programs answer every failure with exit code 1, but write their report before they complain of a mismatch. So a
report with exit code 1 is about the model, and exit code 1 without one is about the machine.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from agent.lanes.result import Findings, LaneResult, Status
from agent.prebuilt.ports import says_taken
from agent.prebuilt.processes import Ended
from agent.prebuilt.stages import StageEnd

_AT_START_SECONDS = 1.0
_STOPPED_BY_PARENT = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
_CANNOT_EXECUTE = (126, 127)
_USAGE = 2


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why a run does not count, whatever its report says. `retry` is True where other ports may help."""

    status: Status
    message: str
    retry: bool = False


def trouble_of(
    ended: Ended,
    *,
    says_pass: bool | None,
    mismatch_allowed: bool,
    stages: Sequence[StageEnd] = (),
    taken_ports: Sequence[int] = (),
    startup_seconds: float = 0,
) -> Trouble | None:
    """What is wrong with the end of a program; None if nothing is.

    Args:
        ended: how it ended.
        says_pass: what its report says; None where it left none that can be used.
        mismatch_allowed: it was told to end with 0 on a mismatch.
        stages: servers of it that ended by themselves.
        taken_ports: ports given to it on which somebody else listens now.
        startup_seconds: how long it waits for a stage.
    """
    if ended.stuck:
        return _infra(
            f"processes {', '.join(map(str, ended.stuck))} of it cannot be killed: this machine must not run anything else; "
            "restart it"
        )
    if ended.timed_out:
        when = "wrote no report" if says_pass is None else "wrote its report and did not end"
        return _infra(f"hung: it {when} and was stopped after {ended.seconds:.0f} s; its last words: {ended.words}")
    if ended.code < 0:
        return _death("it", ended.code, ended.words, at_start=ended.seconds < _AT_START_SECONDS)
    if says_pass is None:
        return _without_report(ended, stages, taken_ports, startup_seconds)
    expected = 0 if says_pass or mismatch_allowed else 1
    if ended.code != expected:
        verdict = "pass" if says_pass else "fail"
        return _infra(
            f"its report says {verdict} and it ended with exit code {ended.code} instead of {expected}: {ended.words}"
        )
    if ended.left and ended.code == 0:
        return Trouble(
            status=Status.FAIL,
            message=f"it left {len(ended.left)} processes behind, which hold ports and memory; they were killed",
        )
    return None


def conclude(findings: Findings, troubles: Sequence[Trouble], summary: str) -> LaneResult:
    """The result of a lane: what was found wrong with the model outranks what was wrong with the machine."""
    if not troubles:
        return findings.result(summary)
    failed = bool(findings.problems) or any(trouble.status is Status.FAIL for trouble in troubles)
    problems = (*findings.problems, *(trouble.message for trouble in troubles))
    return LaneResult(
        lane=findings.lane,
        status=Status.FAIL if failed else Status.INFRA,
        comparisons=findings.comparisons,
        summary=problems[0],
        problems=problems,
        notes=tuple(findings.notes),
        measurements=findings.measurements,
    )


def _without_report(
    ended: Ended, stages: Sequence[StageEnd], taken_ports: Sequence[int], startup_seconds: float
) -> Trouble:
    if taken_ports:
        ports = ", ".join(map(str, taken_ports))
        return Trouble(
            status=Status.INFRA,
            message=f"another process took port {ports} while it started: {ended.words}",
            retry=True,
        )
    for stage in stages:
        if stage.code < 0 and stage.code not in _STOPPED_BY_PARENT:
            return _death("a stage server", stage.code, stage.words)
    if ended.code == _USAGE:
        return _infra(f"it did not accept its arguments (exit code 2): {ended.words}. Extend agent/prebuilt/adapter.py")
    if ended.code in _CANNOT_EXECUTE:
        return _infra(f"it cannot run on this machine (exit code {ended.code}): {ended.words}")
    for stage in stages:
        if stage.code > 0:
            return Trouble(
                status=Status.INFRA,
                message=f"a stage server ended before it served (exit code {stage.code}): {stage.words}",
                retry=says_taken(stage.words),
            )
    # a stage of the split before that was told to end still answers for a moment, and the next one has the same port: whoever
    # comes then is cut off. That takes no time, unlike waiting for a stage that never serves
    return Trouble(
        status=Status.INFRA,
        message=f"it left no report and ended with exit code {ended.code}: {ended.words}",
        retry=ended.seconds < startup_seconds,
    )


def _death(who: str, code: int, words: str, *, at_start: bool = False) -> Trouble:
    name = signal.Signals(-code).name
    if code == -signal.SIGKILL:
        why = (
            "too little memory, or a system that lets no unsigned program run"
            if at_start
            else "most often out of memory"
        )
        return _infra(f"{who} was killed by the system{' at its start' if at_start else ''} ({name}): {why}")
    return Trouble(status=Status.FAIL, message=f"{who} died ({name}): {words}")


def _infra(message: str) -> Trouble:
    return Trouble(status=Status.INFRA, message=message)
