"""`edges`: the lengths come from the model, every one within the budget is tried, and what breaks only there is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.faults.catalog import find_fault
from agent.lanes.catalog import LANES
from agent.lanes.edge_cases import Edge, edges_of
from agent.lanes.result import LaneResult, Status
from agent.lanes.subject import Subject
from tests.agent.conftest import Subjects

PARAMS = {"micro_batch": 16, "decode_steps": 3, "long_steps": 6, "max_tokens": 200, "max_error": 0.1}


def run(subject: Subject, **changes: Any) -> LaneResult:
    """The lane with small sizes."""
    return LANES["edges"].run(subject, PARAMS | changes)


def edges(subject: Subject) -> dict[int, Edge]:
    """The edges of a model by size; of two with one size, the later one."""
    found = edges_of(subject.header, micro_batch=16, decode_steps=8, long_steps=32)
    return {edge.size: edge for edge in found}


def with_metadata(subject: Subject, **values: Any) -> Subject:
    """The same model, with other values of its architecture in the header."""
    metadata = {**subject.header.metadata}
    metadata |= {subject.header.key(key.replace("__", ".")): value for key, value in values.items()}
    other = Subject(subject.model, replace(subject.header, metadata=metadata), subject.expectations, subject.threads)
    other.share(subject)
    return other


def test_every_model_has_the_shortest_prompts_and_a_full_micro_batch(subjects: Subjects) -> None:
    """A model without windows or state has these two, and greedy steps go on for long after the second."""
    found = edges(subjects("qwen3-dense"))
    assert sorted(found) == [2, 16]
    assert found[2].lengths == (1, 2, 3)
    assert found[16].decode_steps == 32


def test_edges_are_read_from_the_header(subjects: Subjects) -> None:
    """A short convolution, a chunk of the delta rule, a window and its double; a list of ratios gives each of them."""
    assert edges(subjects("lfm2"))[3].why == "the reach of its short convolution"
    chunked = edges(subjects("qwen3next"))
    assert chunked[64].why == "a chunk of its delta rule"
    assert chunked[64].micro_batch >= 64 + 1 + 2  # one graph holds the prompt, and what two neighbours decode
    windowed = edges(with_metadata(subjects("qwen3-dense"), attention__sliding_window=24))
    assert windowed[24].why == "the window of its attention"
    assert windowed[48].why.startswith("two windows")
    ratios = edges(with_metadata(subjects("qwen3-dense"), attention__compress_ratios=(0, 4, 128, 4)))
    assert {4, 128} < set(ratios)
    assert 0 not in ratios


@pytest.mark.parametrize("value", [0, 1, -7, True, "many", None, 2.5, 2**62])
def test_a_header_that_lies_adds_no_edge_that_is_tried(subjects: Subjects, value: object) -> None:
    """What is no length is left out; what is beyond every budget is named and not tried."""
    subject = with_metadata(subjects("qwen3-dense"), attention__sliding_window=value)
    result = run(subject)
    assert result.status is Status.PASS, result.problems
    assert [edge["size"] for edge in result.measurements["edges"]] == [2, 16]
    assert bool(result.notes) == (value == 2**62)


def test_an_edge_beyond_the_budget_is_named(subjects: Subjects) -> None:
    """Nothing is left out in silence."""
    result = run(subjects("qwen3next"), max_tokens=30)
    assert result.status is Status.PASS
    assert any("a chunk of its delta rule (64 tokens) was not tried" in note for note in result.notes)


def test_nothing_within_the_budget_is_no_pass(subjects: Subjects) -> None:
    """A budget that leaves no edge leaves no comparison of a split."""
    result = run(subjects("qwen3-dense"), max_tokens=1)
    assert result.measurements["edges"] == []
    assert result.status is Status.FAIL


@pytest.mark.parametrize("family", ["qwen3-dense", "lfm2", "rwkv7"])
def test_the_lane_passes_on_a_sound_model(subjects: Subjects, family: str) -> None:
    """Alone and side by side, and every comparison is counted."""
    result = run(subjects(family))
    assert result.status is Status.PASS, result.problems
    tried = result.measurements["edges"]
    steps = [6 if edge["why"] == "a full micro-batch" else 3 for edge in tried]
    assert result.comparisons >= sum(9 * edge["size"] + 7 * step for edge, step in zip(tried, steps, strict=True))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("neighbours-mixed", "sequence 2 beside others"),
        ("take-back-does-nothing", "after the last token was taken back"),
        ("boundary-tensor-forgotten", "split at"),
    ],
)
def test_what_breaks_there_is_seen(subjects: Subjects, fault: str, words: str) -> None:
    """The third sequence, a token that is not taken back, a tensor that does not cross."""
    result = run(find_fault(fault).seed(subjects("lfm2")))
    assert result.status is Status.FAIL
    assert any(words in problem for problem in result.problems)
