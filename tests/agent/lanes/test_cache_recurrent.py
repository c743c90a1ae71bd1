"""`cache-recurrent` where there is nothing recurrent."""

from __future__ import annotations

from agent.lanes.catalog import LANES
from agent.lanes.result import Status
from tests.agent.conftest import Legs, Subjects
from tests.agent.lanes.test_battery import params_of


def test_a_model_without_recurrent_state_fails_by_name(subjects: Subjects, legs: Legs) -> None:
    """A row that calls a dense model recurrent: a lane that counted nothing does not pass, and does not break off."""
    result = LANES["cache-recurrent"].run(subjects("qwen3-dense"), params_of(legs, "lfm2", "cache-recurrent"))
    assert result.status is Status.FAIL
    (problem,) = result.problems
    assert "no layer of the graph is known to keep recurrent state" in problem
