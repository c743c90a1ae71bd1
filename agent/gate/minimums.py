"""The least number of comparisons that a lane must have made to count: the plan's, and what the leg itself found to sweep."""

from __future__ import annotations

from matrixgen.battery import LaneSpec


def least_comparisons(lane: LaneSpec, *, legal_cuts: int = 1) -> int:
    """The plan's minimum, never below 1. A sweep of all cuts owes it for each of the `legal_cuts` that `inspect` found."""
    least = max(1, lane.min_comparisons)
    return least * max(1, legal_cuts) if lane.name == "boundary-sweep" and lane.params.get("cuts") == "all" else least
