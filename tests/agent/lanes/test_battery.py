"""Whole batteries: all lanes that a family owes, on real models."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.engine.session import Logits, Session, Shape, Tap, Tokens
from agent.lanes.catalog import LANES
from agent.lanes.result import LaneResult, Status
from agent.lanes.subject import Expectations, Subject
from agent.receipt.receipt import read_receipt
from agent.selftest import _shorten
from matrixgen.manifest import Manifest
from matrixgen.minimums import least_comparisons
from tests.agent.conftest import Cli, Legs, Subjects, changed

# dense, hybrid, and recurrent with a sideband
FAMILIES = ("qwen3-dense", "lfm2", "rwkv7")


def run(subject: Subject, lane: str, params: Mapping[str, Any]) -> LaneResult:
    """One lane."""
    return LANES[lane].run(subject, params)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", ["short", pytest.param("whole", marks=pytest.mark.slow)])
def test_the_battery_passes_on_a_sound_model(subjects: Subjects, legs: Legs, family: str, size: str) -> None:
    """Every lane passes and compares at least what the gate will ask for; short ones take fewer steps."""
    subject, leg = subjects(family), legs(family, event="manual-full")
    assert len(leg.lanes) >= 14
    for lane in leg.lanes:
        params = lane.params if size == "whole" else _shorten(lane.params)
        result = run(subject, lane.name, params)
        assert result.lane == lane.name
        assert result.status is Status.PASS, result.problems
        assert result.comparisons >= least_comparisons(lane.name, params), lane.name
        json.dumps(result.to_json(), allow_nan=False, default=lambda value: value.item())


def params_of(legs: Legs, family: str, lane: str) -> Mapping[str, Any]:
    """The parameters that the battery gives a lane."""
    return _shorten(next(spec.params for spec in legs(family).lanes if spec.name == lane))


def test_what_is_measured_is_what_was_run(subjects: Subjects, legs: Legs) -> None:
    """The figures of a receipt come from the model: cuts, topologies, bytes and the width of the hidden state."""
    subject = subjects("lfm2")
    assert run(subject, "inspect", {}).measurements["legal_cuts"] == list(range(1, 16))
    sweep = run(subject, "boundary-sweep", {**params_of(legs, "lfm2", "boundary-sweep"), "cuts": "all"})
    assert sweep.measurements["cuts"] == list(range(1, 16))
    assert sweep.measurements["exact"] == 15
    assert sweep.measurements["single_kind_stages"]
    cached = run(subject, "cache-recurrent", params_of(legs, "lfm2", "cache-recurrent"))
    figures = cached.measurements
    assert figures["topologies"] == ["one-stage", "split-first", "split-middle", "split-final"]
    assert 0 < figures["recurrent_bytes"] < figures["state_bytes"]
    policy = run(subject, "cache-policy", {})
    assert policy.measurements["attention_first_stages"] > 0


def test_a_purely_recurrent_model_has_no_kv_bytes(subjects: Subjects, legs: Legs) -> None:
    """All of its exported state is recurrent."""
    result = run(subjects("rwkv7"), "cache-recurrent", params_of(legs, "rwkv7", "cache-recurrent"))
    assert result.status is Status.PASS
    assert result.measurements["recurrent_bytes"] == result.measurements["state_bytes"]


@pytest.mark.parametrize(
    ("lane", "change", "words"),
    [
        ("inspect", {"arch": "llama"}, "the row qwen3-dense says 'llama'"),
        (
            "cache-policy",
            {"cache": "KvRecurrent"},
            "the layers call for ResidentKv, the row qwen3-dense says KvRecurrent",
        ),
        ("cache-policy", {"cache": "other"}, "the row qwen3-dense says other"),
    ],
)
def test_a_row_that_says_otherwise_fails_its_lane(
    subjects: Subjects, manifest: Manifest, lane: str, change: dict[str, Any], words: str
) -> None:
    """What the manifest says of the family is compared with the file."""
    subject = subjects("qwen3-dense")
    row = changed(manifest.family("qwen3-dense"), **change)
    result = run(with_expectations(subject, Expectations(family=row, random_weights=True)), lane, {})
    assert result.status is Status.FAIL
    assert any(words in problem for problem in result.problems)


def test_a_row_may_always_do_without_reuse(subjects: Subjects, manifest: Manifest) -> None:
    """A family whose cache is disabled passes, and a note says what its layers would allow."""
    row = changed(manifest.family("qwen3-dense"), cache="disabled")
    expectations = Expectations(family=row, random_weights=True)
    result = run(with_expectations(subjects("qwen3-dense"), expectations), "cache-policy", {})
    assert result.status is Status.PASS
    assert any("its layers would allow ResidentKv" in note for note in result.notes)


def with_expectations(subject: Subject, expectations: Expectations) -> Subject:
    """The same model, of which something else is expected."""
    return Subject(subject.model, subject.header, expectations, 1)


@pytest.mark.parametrize(
    ("family", "shape", "words"),
    [
        ("qwen3-dense", "looped", "is looped, and the model runs each block once"),
        ("qwen3-dense", "hybrid", "is hybrid, and the graph keeps no recurrent state"),
        ("lfm2", "dense", "is dense, and the graph keeps recurrent state"),
        ("nanbeige", "dense", "is dense, and the model runs its blocks more than once"),
    ],
)
def test_a_row_of_another_shape_fails(subjects: Subjects, family: str, shape: str, words: str) -> None:
    """The shape decides which lanes are owed, so a wrong one would leave some out unseen."""
    subject = subjects(family)
    row = changed(subject.expectations.family, shape=shape)
    result = run(with_expectations(subject, changed(subject.expectations, family=row)), "inspect", {})
    assert result.status is Status.FAIL
    assert any(words in problem for problem in result.problems), result.problems


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"frontier": ("l_out-{k-1}", "extra@0")}, "extra@0 no longer crosses a cut"),
        ({"frontier": ()}, "l_out-{k-1} now crosses a cut"),
        ({"tokens": True}, "token ids no longer cross"),
        ({"caches": ("k+v", "r+s")}, "caches were k+v, r+s and are k+v"),
        ({"shared_state": True}, "layers no longer read the caches of layers below"),
    ],
)
def test_a_contract_other_than_the_recorded_one_fails(subjects: Subjects, change: dict[str, Any], words: str) -> None:
    """Every part of the record is compared and the difference is said in words."""
    subject = subjects("qwen3-dense")
    recorded = subject.expectations.recorded
    assert recorded is not None
    expectations = changed(subject.expectations, recorded=changed(recorded, **change))
    result = run(with_expectations(subject, expectations), "contract", {})
    assert result.status is Status.FAIL
    assert any(words in problem for problem in result.problems), result.problems


def test_an_architecture_without_a_record_fails(subjects: Subjects) -> None:
    """There is nothing to compare with, and the problem says how to record the contract."""
    subject = subjects("qwen3-dense")
    expectations = changed(subject.expectations, recorded=None)
    result = run(with_expectations(subject, expectations), "contract", {})
    assert result.status is Status.FAIL
    assert "no contract is recorded for qwen3" in result.summary
    assert "record-contracts" in result.summary


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokens": (1, 2, 3)}, "the twin answered [1, 2, 3] and answers ["),
        ({"logits": (0.0,) * 8}, "logits of the twin moved by"),
        ({"logits": (math.nan,) * 8}, "logits of the twin moved by nan"),
        ({"logits": ()}, "0 logits are recorded, not 8"),
    ],
)
def test_an_answer_other_than_the_recorded_one_fails(subjects: Subjects, change: dict[str, Any], words: str) -> None:
    """Whole and split agree with one another, and neither with what was recorded."""
    expectations = subjects("qwen3-dense").expectations
    recorded = expectations.recorded
    assert recorded is not None
    answers = {expectations.twin: changed(recorded.answers[expectations.twin], **change)}
    expectations = changed(expectations, recorded=changed(recorded, answers=answers))
    result = run(with_expectations(subjects("qwen3-dense"), expectations), "contract", {})
    assert result.status is Status.FAIL
    assert any(words in problem for problem in result.problems), result.problems


def test_a_twin_without_a_recorded_answer_fails(subjects: Subjects) -> None:
    """Absent is not green; for weights, and for the twin of a header, none is owed."""
    expectations = changed(subjects("qwen3-dense").expectations, twin="another")
    result = run(with_expectations(subjects("qwen3-dense"), expectations), "contract", {})
    assert (
        "no answer is recorded for the twin another: run `skippy-agent record-contracts qwen3-dense`" in result.summary
    )
    result = run(with_expectations(subjects("qwen3-dense"), changed(expectations, twin="")), "contract", {})
    assert result.status is Status.PASS


@pytest.mark.parametrize(
    ("policy", "status"),
    [("required", Status.FAIL), ("validated", Status.FAIL), ("rejected", Status.PASS), ("untested", Status.PASS)],
)
def test_the_wire_policy_is_judged_on_real_weights(
    subjects: Subjects, manifest: Manifest, legs: Legs, policy: str, status: Status
) -> None:
    """A wire that changes tokens fails where the row promises it; on random weights it is measured only."""
    row = manifest.family("qwen3-dense")
    row = changed(row, wire=changed(row.wire, q8=policy))
    params = {**params_of(legs, "qwen3-dense", "dtype-matrix"), "wires": ["q8"]}
    subject = _Noisy.of(subjects("qwen3-dense"), Expectations(family=row, random_weights=False))
    result = run(subject, "dtype-matrix", params)
    assert result.measurements["q8"]["cuts_with_other_tokens"] > 0
    assert result.status is status, result.problems
    random = _Noisy.of(subjects("qwen3-dense"), Expectations(family=row, random_weights=True))
    assert run(random, "dtype-matrix", params).status is Status.PASS


class _OtherTokens(Session):
    """Sees other tokens than those of the reference, so that the greedy choice is another one."""

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        logits = super().decode(tokens, position, sequence, tap)
        return np.roll(logits, 1, axis=1)


class _Noisy(Subject):
    """A model whose upper stages choose other tokens, as quantised frames can make them."""

    @classmethod
    def of(cls, subject: Subject, expectations: Expectations) -> Subject:
        return cls(subject.model, subject.header, expectations, 1)

    def session(self, shape: Shape) -> Session:
        return _OtherTokens(self.model, shape)


@pytest.fixture(scope="module")
def tier_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the receipts of whole runs."""
    return tmp_path_factory.mktemp("tier-1")


def certify_tier_1(process: Cli, folder: Path) -> list[dict[str, Any]]:
    """The receipts of one run, as printed."""
    done = process("certify", "--tier", "1", "--twin", "--json", "--receipts", folder)
    assert done.code == 0, done.err
    assert done.err == ""
    receipts: list[dict[str, Any]] = json.loads(done.out)
    return receipts


@pytest.mark.slow
def test_all_of_tier_1_passes_and_says_the_same_twice(process: Cli, tier_1: Path, manifest: Manifest) -> None:
    """Each Tier 1 family has a receipt with every owed lane passed; a second run differs in times and digests alone."""
    first = certify_tier_1(process, tier_1 / "first")
    families = sorted(family.family for family in manifest.families if family.tier == 1)
    assert [receipt["family"]["family"] for receipt in first] == families
    for receipt in first:
        assert receipt["status"] == "pass"
        assert len(receipt["lanes"]) >= 10
        for lane in receipt["lanes"]:
            assert lane["status"] == "pass", lane
            assert lane["comparisons"] > 0
        on_disk = read_receipt(tier_1 / "first" / receipt["leg"] / "receipt.json")
        assert on_disk.to_json() == receipt
    second = certify_tier_1(process, tier_1 / "second")
    assert [timeless(receipt) for receipt in second] == [timeless(receipt) for receipt in first]


def timeless(receipt: dict[str, Any]) -> dict[str, Any]:
    """A receipt without what differs from run to run."""
    kept = {key: value for key, value in receipt.items() if key not in ("started_at", "finished_at", "digest", "log")}
    kept["lanes"] = [{key: value for key, value in lane.items() if key != "seconds"} for lane in receipt["lanes"]]
    return kept
