"""Jobs and chunks: a partition of the legs, balanced, stable, and inside GitHub's limits."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixgen.caches import CacheChoice
from matrixgen.cost import Estimate
from matrixgen.errors import InvalidValue, LimitExceeded
from matrixgen.jobs import Job, chunks_of, jobs_of
from matrixgen.leg import Leg, Plan
from matrixgen.limits import MAX_MATRIX_LEGS, fit_summary
from matrixgen.manifest import Manifest, load_manifest
from matrixgen.matrix import chunk_matrix, github_outputs, leg_matrix, one_chunk
from matrixgen.plan import build_plan
from tests.matrixgen.kit import FIXED, many

BASE = build_plan(load_manifest(FIXED), event="pull-request", families=["mamba"]).legs[0]


def leg(number: int, seconds: int, *, runner: str = "hosted-linux-cpu", store: str = "none") -> Leg:
    """A leg that takes so long."""
    family = BASE.family._replace(family=f"f{number:05d}")
    cache = CacheChoice(store, "as the test says")
    return dataclasses.replace(
        BASE, id=f"f{number:05d}@cpu", family=family, runner=runner, cache=cache, estimate=Estimate(seconds, "model")
    )


LEGS = st.lists(
    st.tuples(st.integers(1, 4000), st.sampled_from(["a", "b"]), st.sampled_from(["none", "actions-cache", "s3"])),
    max_size=60,
).map(lambda drawn: [leg(n, seconds, runner=runner, store=store) for n, (seconds, runner, store) in enumerate(drawn)])


@settings(max_examples=80, deadline=None)
@given(legs=LEGS, minutes=st.integers(0, 60))
def test_jobs_are_a_partition(legs: list[Leg], minutes: int) -> None:
    """Every leg is in exactly one job, whatever is packed, and the order of the legs makes no difference."""
    jobs = jobs_of(legs, pack_minutes=minutes)
    assert sorted(leg.id for job in jobs for leg in job.legs) == [leg.id for leg in legs]
    assert len({job.id for job in jobs}) == len(jobs)
    assert jobs_of(legs[::-1], pack_minutes=minutes) == jobs
    for job in jobs:
        assert len({(leg.runner, leg.build_key, leg.subject, leg.cache.store) for leg in job.legs}) == 1
        if len(job.legs) > 1:
            assert job.seconds <= minutes * 60
            assert job.legs[0].cache.store != "actions-cache"
        assert job.timeout_minutes <= 360


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=2, max_size=80))
def test_packed_jobs_are_balanced(seconds: list[int]) -> None:
    """No two jobs of a group differ by more than the longest leg, and there are not twice as many as needed."""
    jobs = jobs_of([leg(n, value) for n, value in enumerate(seconds)], pack_minutes=10)
    work = [job.seconds for job in jobs]
    assert max(work) - min(work) <= max(seconds)
    assert len(jobs) <= 2 * -(-sum(seconds) // 600)


def test_without_packing_a_leg_is_a_job(live: Manifest) -> None:
    """The id of a job with one leg is that of the leg, which `skippy-agent` takes."""
    plan = build_plan(live, event="release")
    assert [(job.id, job.legs) for job in jobs_of(plan.legs)] == [(leg.id, (leg,)) for leg in plan.legs]


def test_pull_requests_pack_well(live: Manifest) -> None:
    """All twins of a pull request fit a few jobs; each entry names its legs."""
    plan = build_plan(live, event="pull-request")
    matrix = leg_matrix(plan, jobs_of(plan.legs, pack_minutes=10))["include"]
    assert len(matrix) < len(plan.legs) / 5
    assert sorted(" ".join(entry["legs"] for entry in matrix).split()) == sorted(leg.id for leg in plan.legs)


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 511, 512, 513])
def test_chunks_are_a_partition(count: int) -> None:
    """A3: all jobs, in order, none twice, no chunk too large or empty; the names do not depend on the count."""
    jobs = [Job(f"j{n}", "j", (BASE,), 5) for n in range(count)]
    chunks = chunks_of(jobs)
    assert [job for _, part in chunks for job in part] == jobs
    assert all(0 < len(part) <= MAX_MATRIX_LEGS for _, part in chunks)
    assert [name for name, _ in chunks] == [f"chunk-{n:03d}" for n in range(1, len(chunks) + 1)]
    assert all(len(part) == MAX_MATRIX_LEGS for _, part in chunks[:-1])


def test_chunked_outputs(fixed: Manifest) -> None:
    """A2: 270 legs are two matrices; together they hold every leg, and the count says how many are owed."""
    plan = many(fixed, 270)
    outputs = github_outputs(plan, chunked=True)
    assert "matrix" not in outputs
    chunks = json.loads(outputs["chunks"])["include"]
    assert [(chunk["name"], chunk["count"]) for chunk in chunks] == [("chunk-001", 256), ("chunk-002", 14)]
    ids = [entry["id"] for chunk in chunks for entry in chunk["matrix"]["include"]]
    assert ids == [leg.id for leg in plan.legs]
    assert (outputs["count"], outputs["has_legs"]) == ("270", "true")


def test_one_chunk_is_the_same_part(fixed: Manifest) -> None:
    """`--chunk` prints what `--chunked` holds; a name that is not there is told the names that are."""
    plan = many(fixed, 270)
    jobs = jobs_of(plan.legs)
    part = chunk_matrix(plan, jobs)["include"][1]["matrix"]
    assert leg_matrix(plan, one_chunk(jobs, "chunk-002")) == part
    with pytest.raises(InvalidValue, match="chunk-001 to chunk-002"):
        one_chunk(jobs, "chunk-003")


def test_too_many_legs_name_the_ways_out(fixed: Manifest) -> None:
    """A1, A4: the count, the axes, and what helps; never a shorter matrix."""
    said = r"288 legs \(288 families x 1 backends, the families cross the limit\).*--pack.*--chunked"
    with pytest.raises(LimitExceeded, match=said):
        leg_matrix(many(fixed, 288))


def test_chunks_beyond_the_outputs_are_refused(fixed: Manifest) -> None:
    """A14: 1,200 legs do not fit the outputs of one job, chunks or not; the error says how to go on."""
    with pytest.raises(LimitExceeded, match="--chunk NAME"):
        github_outputs(many(fixed, 1200), chunked=True)


def test_one_saver_for_each_model_key(live: Manifest) -> None:
    """A25, F15: off main nobody saves; on main one job for each key of GitHub's cache, and no other."""
    plan = build_plan(live, event="nightly")
    assert not [entry for entry in leg_matrix(plan)["include"] if entry["save_cache"]]
    entries = leg_matrix(plan, save_caches=True)["include"]
    saved = [entry["model_key"] for entry in entries if entry["save_cache"]]
    assert sorted(saved) == sorted({e["model_key"] for e in entries if e["cache_backend"] == "actions-cache"})
    assert saved


def test_receipt_names_are_distinct(live: Manifest) -> None:
    """A19: no two jobs upload to one name, packed or not."""
    plan = build_plan(live, event="release")
    for minutes in (0, 60):
        names = [entry["receipts"] for entry in leg_matrix(plan, jobs_of(plan.legs, pack_minutes=minutes))["include"]]
        assert len(set(names)) == len(names)


def test_kept_legs_keep_the_plan_whole(fixed: Manifest) -> None:
    """A smaller matrix of the same plan: the digest and the count stay."""
    plan: Plan = build_plan(fixed, event="release")
    jobs = jobs_of(plan.legs, kept={"mamba@cpu"})
    outputs = github_outputs(plan, jobs)
    assert [entry["id"] for entry in json.loads(outputs["matrix"])["include"]] == ["mamba@cpu"]
    assert len(json.loads(outputs["builds"])["include"]) == 1
    assert (outputs["plan_digest"], outputs["count"]) == (plan.digest, str(len(plan.legs)))


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20])
def test_summaries_fit(size: int) -> None:
    """A summary of more than 1 MiB would be dropped whole; ours is cut at a line and says so."""
    text = ("é" * 49 + "x\n") * (size // 100 + 1)
    text = text.encode()[:size].decode(errors="ignore")
    fitted = fit_summary(text)
    assert len(fitted.encode()) <= 2**20
    assert (fitted == text) == (len(text.encode()) <= 2**20)
    assert fitted == text or "cut" in fitted
