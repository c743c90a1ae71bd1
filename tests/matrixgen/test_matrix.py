"""The matrices: fully expanded, small, and inside GitHub's limits or refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from matrixgen import limits
from matrixgen.errors import InvalidValue, LimitExceeded
from matrixgen.manifest import Manifest
from matrixgen.matrix import build_matrix, github_outputs, leg_matrix
from matrixgen.plan import build_plan
from tests.matrixgen.kit import many


def holds_null(value: Any) -> bool:
    """True when None is anywhere in a JSON value."""
    if isinstance(value, dict):
        return any(map(holds_null, value.values()))
    return any(map(holds_null, value)) if isinstance(value, list) else value is None


def test_entries_are_expanded_and_small(live: Manifest) -> None:
    """A26: only `include`, each entry whole; no axis to multiply, nothing to exclude, no null."""
    plan = build_plan(live, event="release")
    matrix = leg_matrix(plan)
    assert list(matrix) == ["include"]
    assert len(matrix["include"]) == len(plan.legs)
    assert len({tuple(entry) for entry in matrix["include"]}) == 1
    assert not holds_null(matrix)
    assert not holds_null(build_matrix(plan))
    assert all(isinstance(entry["runs-on"], list) and entry["runs-on"] for entry in matrix["include"])


def test_each_leg_waits_for_a_build_that_is_there(live: Manifest) -> None:
    """Keys and artifact names of legs and builds belong together."""
    plan = build_plan(live, event="release")
    built = {entry["key"]: entry["artifact"] for entry in build_matrix(plan)["include"]}
    assert {(entry["build_key"], entry["build_artifact"]) for entry in leg_matrix(plan)["include"]} == set(
        built.items()
    )


@pytest.mark.parametrize("count", [1, 255, 256])
def test_up_to_256_legs(fixed: Manifest, count: int) -> None:
    """A3: the limit itself still fits."""
    assert len(leg_matrix(many(fixed, count))["include"]) == count


@pytest.mark.parametrize("count", [257, 512, 513])
def test_more_legs_are_refused_with_their_number(fixed: Manifest, count: int) -> None:
    """A1, A2, A4: never cut off; the message counts the legs along each axis."""
    with pytest.raises(LimitExceeded, match=f"{count} legs \\({count} families x 1 backends, the families cross"):
        leg_matrix(many(fixed, count))


def test_one_more_backend_crosses_the_limit(fixed: Manifest) -> None:
    """A4: the expanded legs count, not the rows."""
    families = many(fixed, 200).legs
    manifest = fixed._replace(families=tuple(leg.family for leg in families))
    plan = build_plan(manifest, event="llama-bump", tiers=[1], backends=["cpu", "cuda"])
    with pytest.raises(LimitExceeded, match="200 families x 2 backends, the backends cross the limit"):
        leg_matrix(plan)


def test_empty_plan_gives_an_empty_list(fixed: Manifest) -> None:
    """A5, A6: count is 0, has_legs is false, include is a list."""
    outputs = github_outputs(many(fixed, 0))
    assert outputs["matrix"] == outputs["builds"] == '{"include":[]}'
    assert (outputs["count"], outputs["has_legs"]) == ("0", "false")


def test_outputs_of_a_plan(live: Manifest) -> None:
    """Every output is one compact ASCII line; count and digest are those of the plan."""
    plan = build_plan(live, event="llama-bump", tiers=[1])
    outputs = github_outputs(plan)
    assert set(outputs) == {"matrix", "builds", "has_legs", "count", "plan_digest"}
    assert all(value.isascii() and "\n" not in value for value in outputs.values())
    assert (outputs["count"], outputs["has_legs"], outputs["plan_digest"]) == (str(len(plan.legs)), "true", plan.digest)
    assert json.loads(outputs["matrix"]) == leg_matrix(plan)


def test_long_notes_stay_out_of_the_outputs(fixed: Manifest) -> None:
    """A14: 200 rows with 2 KB of notes each give the same outputs as without."""
    short, long = (github_outputs(many(fixed, 200, notes)) for notes in ("", "é" * 2000))
    assert len(short["matrix"]) == len(long["matrix"])


def test_output_size_counts_utf16() -> None:
    """A14: half a million ASCII characters are a megabyte."""
    limits.check_outputs({"a": "x" * (2**19 - 1)})
    with pytest.raises(LimitExceeded, match="UTF-16"):
        limits.check_outputs({"a": "x" * 2**19})
    with pytest.raises(LimitExceeded, match="largest is b"):
        limits.check_outputs({"a": "x" * 2**18, "b": "x" * (2**18 + 1)})


def test_two_legs_with_one_id_are_refused(fixed: Manifest) -> None:
    """A19: names that would overwrite one another are found when the matrix is made."""
    plan = many(fixed, 1)
    with pytest.raises(InvalidValue, match="same id"):
        leg_matrix(dataclasses.replace(plan, legs=plan.legs * 2))


@pytest.mark.parametrize("length", [511, 512])
def test_key_length_limit(length: int) -> None:
    """A20: 512 characters are the last good ones."""
    limits.check_key("k" * length)


@pytest.mark.parametrize("key", ["", "k" * 513, "a,b"])
def test_bad_keys_are_refused(key: str) -> None:
    """A20: empty, too long, or with a comma."""
    with pytest.raises(LimitExceeded):
        limits.check_key(key)


@pytest.mark.parametrize(
    "name", ["", "a:b", "a/b", "a\\b", "a*b", 'a"b', "a|b", "a?b", "a\rb", "a\nb", "<", ">", "x" * 256]
)
def test_bad_artifact_names_are_refused(name: str) -> None:
    """A18: every character that upload-artifact refuses."""
    with pytest.raises(LimitExceeded):
        limits.check_artifact_name(name)


def test_minutes_are_capped_by_the_runner_kind() -> None:
    """A hosted job ends after six hours whatever is asked."""
    assert limits.cap_minutes(1000, self_hosted=False) == 360
    assert limits.cap_minutes(1000, self_hosted=True) == 1000
