"""`conversation`: turns that grow over the prefix cache, and what shows only from the third turn on or after long use."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import ParamsInvalid
from agent.faults.catalog import find_fault
from agent.lanes.catalog import LANES
from agent.lanes.result import LaneResult, Status
from agent.lanes.subject import Subject
from matrixgen.battery import LaneSpec
from matrixgen.cost import tokens_of
from matrixgen.manifest import Manifest
from matrixgen.minimums import least_comparisons
from tests.agent.conftest import Legs, Subjects

PARAMS: dict[str, Any] = {
    "turns": 5,
    "prompt_tokens": 24,
    "turn_tokens": 7,
    "decode_steps": 3,
    "others": 1,
    "micro_batch": 16,
    "max_error": 0.1,
}


def run(subject: Subject, **changes: Any) -> LaneResult:
    """The lane with the sizes of the manifest."""
    return LANES["conversation"].run(subject, PARAMS | changes)


def failed(subject: Subject, **changes: Any) -> tuple[str, ...]:
    """The problems of a run that must fail."""
    result = run(subject, **changes)
    assert result.status is Status.FAIL
    return result.problems


def test_the_manifest_says_what_is_tested_here(manifest: Manifest) -> None:
    """The sizes above are the defaults of the lane."""
    assert manifest.batteries.defaults["conversation"] == PARAMS


@pytest.mark.parametrize(
    ("family", "cache"),
    [
        ("qwen3-dense", "ResidentCache"),
        ("gemma3", "ResidentCache"),  # a sliding window
        ("glm47-flash", "ResidentCache"),  # experts, and attention over a latent
        ("mamba", "SnapshotCache"),
        ("rwkv7", "SnapshotCache"),
        ("lfm2", "SnapshotCache"),
        ("jamba", "SnapshotCache"),
        pytest.param("kimi-linear", "SnapshotCache", marks=pytest.mark.slow),  # the number of sequences matters to it
        pytest.param("deepseek4", "SnapshotCache", marks=pytest.mark.slow),  # its caches are of a kind of their own
    ],
)
def test_five_turns_say_what_they_say_without_a_cache(subjects: Subjects, family: str, cache: str) -> None:
    """Attention, windows, recurrent state and hybrids: exact at each turn, near to one prefill, and everything came back."""
    result = run(subjects(family))
    assert result.status is Status.PASS, result.problems
    figures = result.measurements
    assert (figures["turns"], figures["others"], figures["cache"]) == (5, 4, cache)
    assert 0 < figures["error"] < 0.01
    assert result.comparisons >= least_comparisons("conversation", PARAMS) == 2 * (24 + 4 * 7 + 5 * 3) + 4 * 7


@pytest.mark.parametrize("family", ["qwen3-dense", "mamba", "lfm2"])
def test_a_restore_that_is_right_once_is_seen_from_the_third_turn_on(subjects: Subjects, family: str) -> None:
    """A state that is recorded too early is right in the second turn, and `radix-cache`, which goes on once, sees nothing."""
    faulty = find_fault("answer-recorded-late").seed(subjects(family))
    problems = failed(faulty)
    turns = [problem.partition(":")[0] for problem in problems if problem.startswith("turn ")]
    assert turns == ["turn 3", "turn 4", "turn 5"]
    sizes = {"prefix_tokens": 24, "suffix_tokens": 9, "micro_batch": 16, "decode_steps": 2, "rounds": 1}
    assert LANES["radix-cache"].run(faulty, sizes).status is Status.PASS


@pytest.mark.parametrize("family", ["qwen3-dense", "rwkv7"])
def test_what_breaks_after_long_use_is_seen(subjects: Subjects, family: str) -> None:
    """The fifth prompt of a memory that serves four is wrong, and so is all that follows; fewer of them show nothing."""
    faulty = find_fault("memory-wears-out").seed(subjects(family))
    problems = failed(faulty)
    assert problems[0].startswith("before turn 5, another prompt: first difference at position 0")
    assert problems[1].startswith("turn 5: ")
    assert run(faulty, turns=4).status is Status.PASS
    assert failed(faulty, turns=2, others=4)[0].startswith("before turn 2, another prompt")


def test_more_than_a_hundred_prompts_pass_through_one_memory_at_night(subjects: Subjects, legs: Legs) -> None:
    """The nightly battery owes the soak, which finds what the other batteries are too short for."""
    (spec,) = (lane for lane in legs("qwen3-dense", event="nightly").lanes if lane.name == "conversation")
    result = run(subjects("qwen3-dense"), **spec.params)
    assert result.status is Status.PASS, result.problems
    assert result.measurements["others"] == 128
    assert result.comparisons >= spec.min_comparisons >= 128 * 7
    assert not any(lane.name == "conversation" for lane in legs("qwen3-dense", event="pull-request").lanes)


@pytest.mark.parametrize(
    ("fault", "family", "words"),
    [
        ("kv-byte-flipped", "qwen3-dense", "turn 2: first difference at position 27"),
        ("recurrent-state-dropped", "mamba", "turn 2: first difference at position 27"),
        ("import-does-nothing", "lfm2", "turn 2: the restored sequence ends at position -1, not 26"),
        ("lookup-overshoots", "qwen3-dense", "turn 3: of a history of 37 tokens 27 were found"),
        ("stale-logits", "qwen3-dense", "turn 1: first difference at position 25"),
        ("nan-logits", "qwen3-dense", "turn 1: logits at position 0 are not finite"),
    ],
)
def test_a_wrong_restore_is_named_by_its_turn(subjects: Subjects, fault: str, family: str, words: str) -> None:
    """The first turn that differs says where to look; a turn that cannot be played ends the conversation."""
    problems = failed(find_fault(fault).seed(subjects(family)))
    assert any(words in problem for problem in problems), problems


def test_states_that_leak_are_counted(subjects: Subjects) -> None:
    """What was evicted and is still held is seen before the next turn."""
    problems = failed(find_fault("duplicate-record-leaks").seed(subjects("qwen3-dense")))
    assert "before turn 2: 2 states are held after all others were evicted, not 1" in problems
    assert any("states are held by an empty cache" in problem for problem in problems)


def test_the_one_prefill_is_judged_by_its_own_bound(subjects: Subjects) -> None:
    """Another division of the prompt changes the last bits, which a bound of nothing does not forgive."""
    (problem,) = failed(subjects("qwen3-dense"), max_error=0.0)
    assert problem.startswith("against one prefill: largest normalised error of a position")


@pytest.mark.parametrize(
    ("changes", "others"),
    [({"turns": 2}, 1), ({"turns": 3, "others": 7}, 14), ({"others": 0}, 0), ({"turn_tokens": 1}, 4)],
)
def test_the_sizes_are_those_that_were_asked(subjects: Subjects, changes: dict[str, int], others: int) -> None:
    """Turns, other prompts and their lengths decide how much is compared."""
    result = run(subjects("lfm2"), **changes)
    assert result.status is Status.PASS, result.problems
    params = PARAMS | changes
    assert (result.measurements["turns"], result.measurements["others"]) == (params["turns"], others)
    assert result.comparisons >= least_comparisons("conversation", params)
    assert result.comparisons < least_comparisons("conversation", params) + 6 * params["turns"] + 2 * others


def test_one_turn_is_no_conversation(subjects: Subjects) -> None:
    """Where nothing is restored, nothing is shown."""
    assert failed(subjects("qwen3-dense"), turns=1) == ("a conversation of one turn restores nothing",)


def test_a_conversation_that_does_not_fit_is_refused_by_name(subjects: Subjects) -> None:
    """The cells of a sequence are not enough, and the message says what to shorten."""
    with pytest.raises(ParamsInvalid, match="give the lane fewer prompt tokens or decode steps"):
        run(subjects("qwen3-dense"), turns=30)


def test_the_planner_knows_what_it_costs() -> None:
    """Tokens grow with the other prompts, which is what a nightly run costs more."""
    few, many = (tokens_of(LaneSpec("conversation", PARAMS | {"others": others}), twin=True) for others in (1, 32))
    assert many - few == 31 * 4 * 7
