"""What a lane found: absent is not green."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lanes.result import Findings, LaneResult, Status

words = st.text(max_size=20)


def test_nothing_compared_is_a_fail() -> None:
    """A lane that looked at nothing does not pass, and says so."""
    result = Findings("chain").result("all well")
    assert result.status is Status.FAIL
    assert result.problems == ("nothing was compared",)
    assert result.summary == "nothing was compared"


@given(st.lists(st.booleans(), max_size=30))
def test_a_lane_passes_only_if_something_and_everything_held(conditions: list[bool]) -> None:
    """Every expectation is counted; one that does not hold is a problem with its words."""
    findings = Findings("chain")
    for number, condition in enumerate(conditions):
        assert findings.expect(condition, f"problem {number}") is condition
    result = findings.result("well")
    assert result.comparisons == len(conditions)
    assert (result.status is Status.PASS) == (bool(conditions) and all(conditions))
    wrong = tuple(f"problem {number}" for number, condition in enumerate(conditions) if not condition)
    assert result.problems == (wrong if conditions else ("nothing was compared",))
    assert result.summary == ("well" if result.status is Status.PASS else result.problems[0])


def test_a_problem_without_a_comparison_is_a_fail_too() -> None:
    """Problems may be noted directly."""
    findings = Findings("chain", comparisons=3, problems=["cut 4: differs"])
    assert findings.result("well").status is Status.FAIL


def test_notes_do_not_fail_a_lane() -> None:
    """What is worth knowing is kept beside a pass."""
    findings = Findings("chain", comparisons=1, notes=["f16 wire measured"])
    result = findings.result("well")
    assert result.status is Status.PASS
    assert result.notes == ("f16 wire measured",)


results = st.builds(
    LaneResult,
    lane=words,
    status=st.sampled_from(Status),
    comparisons=st.integers(0, 10**9),
    summary=words,
    problems=st.lists(words, max_size=3).map(tuple),
    notes=st.lists(words, max_size=3).map(tuple),
    measurements=st.dictionaries(words, st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words),
    seconds=st.floats(0, 1e6),
)


@given(results)
def test_a_result_survives_json(result: LaneResult) -> None:
    """What the child sends is what the parent receives."""
    assert LaneResult.from_json(json.loads(json.dumps(result.to_json()))) == result


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_measurement_that_is_no_number_is_sent_as_a_word(value: float) -> None:
    """JSON has no infinity: a broken model's peak must not cost the receipt that says so."""
    result = LaneResult(
        lane="dtype-matrix",
        status=Status.FAIL,
        comparisons=1,
        summary="s",
        problems=("p",),
        measurements={"f16": {"peak": value, "list": [1.0, value]}, "ok": 2.5},
    )
    sent = result.to_json()["measurements"]
    assert sent == {"f16": {"peak": str(value), "list": [1.0, str(value)]}, "ok": 2.5}
    json.dumps(sent, allow_nan=False)
