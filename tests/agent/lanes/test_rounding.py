"""What counts as rounding: a bound, and for models that rounding drives apart what rounding alone does to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from agent.commands.folders import twin_folder
from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.faults.catalog import find_fault
from agent.header.reader import read_model_header
from agent.lanes.agreement import Agreement
from agent.lanes.catalog import find_lane
from agent.lanes.result import Findings, Status
from agent.lanes.rounding import judge_rounding, sensitivity_of
from agent.lanes.subject import Expectations, Subject
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from tests.agent.conftest import Legs, Subjects

BOUND = 0.1


def apart(error: float) -> Agreement:
    """Logits that differ by a normalised error of `error` at each of eight positions."""
    agreement = Agreement()
    reference = np.tile(np.array([4.0, 3.0, 0.0, 0.0], dtype=np.float32), (8, 1))
    agreement.compare(reference, reference + np.array([0.0, 0.0, 5 * error, 0.0], dtype=np.float32), 0)
    return agreement


def judge(subject: Subject, error: float) -> Findings:
    """Judge an error against `BOUND`."""
    findings = Findings("determinism")
    assert judge_rounding(subject, "another shape", apart(error), BOUND, findings) == pytest.approx(error, rel=1e-5)
    return findings


def test_a_twin_of_few_layers_is_hardly_moved(subjects: Subjects) -> None:
    """Some units in the last place stay far below the bound, which is therefore what counts."""
    subject = subjects("qwen3moe")
    assert subject.selects
    assert 0 < sensitivity_of(subject) < BOUND / 20
    assert judge(subject, 0.09).problems == []
    assert "is above 0.1" in judge(subject, 0.11).problems[0]


@pytest.mark.parametrize(
    ("own", "error", "fine"),
    [(0.4, 0.59, True), (0.4, 0.61, False), (5.0, 0.99, True), (5.0, 1.01, False), (0.01, 0.11, False)],
)
def test_a_model_that_rounding_drives_apart_is_held_to_what_rounding_does(
    subjects: Subjects, monkeypatch: pytest.MonkeyPatch, own: float, error: float, fine: bool
) -> None:
    """Half as much again, never as far as logits that have nothing to do with each other; a note says so."""
    subject = subjects("qwen3moe")
    monkeypatch.setattr(subject, "sensitivity", own)
    findings = judge(subject, error)
    assert (findings.problems == []) is fine
    assert any("move this model by" in note for note in findings.notes) is fine


def test_a_model_that_selects_nothing_is_held_to_the_bound(subjects: Subjects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tips there, so what rounding does to it is not even asked."""
    subject = subjects("qwen3-dense")
    monkeypatch.setattr(subject, "sensitivity", 5.0)
    assert "largest normalised error" in judge(subject, 0.11).problems[0]


@pytest.fixture(scope="module")
def deep(legs: Legs) -> Iterator[Subject]:
    """A twin with the 61 layers of DeepSeek-V3.2: its indexer keeps 8 cells, so one tipped choice tips others."""
    recipe = dataclasses.replace(recipe_for("deepseek32"), n_layer=61, pattern="A" * 61)
    path = build_twin(recipe, twin_folder())
    expectations = Expectations(family=legs("deepseek3").family, random_weights=True)
    with Subject(Model(path, choose_device("cpu")), read_model_header(path), expectations, 1) as subject:
        yield subject


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["determinism", "conversation"])
def test_a_deep_model_is_no_false_red(deep: Subject, legs: Legs, lane: str) -> None:
    """Rounding alone moves it further than the bound, and the lanes that compare other shapes say so and pass."""
    (owed,) = legs("deepseek3", lane, event="manual-full").lanes
    result = find_lane(lane).run(deep, owed.params)
    assert result.status is Status.PASS, result.problems
    assert sensitivity_of(deep) > BOUND


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "lane"),
    [("outputs-swapped", "determinism"), ("stale-logits", "determinism"), ("q8-on-f32-wire", "edges")],
)
def test_faults_are_seen_on_a_deep_model(deep: Subject, legs: Legs, fault: str, lane: str) -> None:
    """What is wrong moves such a model further than rounding does, or is held to be exact."""
    (owed,) = legs("deepseek3", lane, event="manual-full").lanes
    result = find_lane(lane).run(find_fault(fault).seed(deep), owed.params)
    assert result.status is Status.FAIL
