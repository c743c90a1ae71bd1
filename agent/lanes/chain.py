"""`chain`: three stages, run live, say what the whole model says, bit for bit."""

from __future__ import annotations

from agent.lanes.cuts import third_cuts
from agent.lanes.result import LaneResult, Status
from agent.lanes.single_step import Params, check_chain
from agent.lanes.subject import Subject

__all__ = ["Params", "run"]


def run(subject: Subject, params: Params) -> LaneResult:
    """Compare three stages with none."""
    cuts = third_cuts(subject.contract)
    if cuts is None:
        return LaneResult(
            lane="chain",
            status=Status.FAIL,
            comparisons=0,
            summary="fewer than two legal cuts: there are no three stages",
            problems=("fewer than two legal cuts: there are no three stages",),
        )
    return check_chain("chain", subject, params.workload, cuts)
