"""The GitHub Actions matrices of a plan: only what a job needs to start, so that no limit is ever near."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrixgen import limits
from matrixgen.errors import InvalidValue
from matrixgen.jobs import SHARED_CACHE, Job, chunks_of, jobs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrixgen.leg import Plan


def leg_matrix(plan: Plan, jobs: Sequence[Job] | None = None, *, save_caches: bool = False) -> dict[str, Any]:
    """`{"include": [...]}`, one fully expanded entry a job; no entry holds null.

    `jobs` are those of `plan`, by default one for each leg. With `save_caches`, the first job of a model key saves it.
    Raises LimitExceeded above 256 jobs and InvalidValue when two legs have the same id.
    """
    jobs = jobs_of(plan.legs) if jobs is None else jobs
    _check_distinct(plan)
    limits.check_legs(
        len(jobs),
        {
            "families": len({leg.family.family for job in jobs for leg in job.legs}),
            "backends": len({leg.backend for job in jobs for leg in job.legs}),
        },
    )
    return _include(plan, jobs, _savers(jobs) if save_caches else frozenset())


def chunk_matrix(plan: Plan, jobs: Sequence[Job], *, save_caches: bool = False) -> dict[str, Any]:
    """`{"include": [{"name", "count", "matrix"}]}`: one entry for each matrix of at most 256 jobs."""
    _check_distinct(plan)
    parts = chunks_of(jobs)
    limits.check_legs(len(parts), {"chunks": len(parts)})
    savers = _savers(jobs) if save_caches else frozenset()
    entries = [{"name": name, "count": len(part), "matrix": _include(plan, part, savers)} for name, part in parts]
    return {"include": entries}


def build_matrix(plan: Plan, *, save_caches: bool = False) -> dict[str, Any]:
    """`{"include": [...]}`, one entry for each set of prebuilt binaries."""
    limits.check_legs(len(plan.builds), {"builds": len(plan.builds)})
    for build in plan.builds:
        limits.check_key(build.key)
        limits.check_artifact_name(build.artifact)
    return {
        "include": [
            {
                "name": f"build {build.os} {build.arch} {build.backend}",
                "runs-on": list(build.runs_on),
                "key": build.key,
                "artifact": build.artifact,
                "backend": build.backend,
                "os": build.os,
                "arch": build.arch,
                "timeout_minutes": build.timeout_minutes,
                "save_cache": save_caches,
            }
            for build in plan.builds
        ]
    }


def github_outputs(
    plan: Plan, jobs: Sequence[Job] | None = None, *, save_caches: bool = False, chunked: bool = False
) -> dict[str, str]:
    """All outputs of the plan job, by name, checked against GitHub's limits. With `chunked`, `chunks` instead of `matrix`."""
    from json import dumps

    def compact(value: Any) -> str:
        return dumps(value, separators=(",", ":"), ensure_ascii=True)

    jobs = jobs_of(plan.legs) if jobs is None else jobs
    name, matrix = (
        ("chunks", chunk_matrix(plan, jobs, save_caches=save_caches))
        if chunked
        else ("matrix", leg_matrix(plan, jobs, save_caches=save_caches))
    )
    builds = _needed(plan, jobs)
    outputs = {
        name: compact(matrix),
        "builds": compact(build_matrix(builds, save_caches=save_caches)),
        "has_legs": "true" if jobs else "false",
        "count": str(len(plan.legs)),
        "plan_digest": plan.digest,
    }
    limits.check_outputs(outputs)
    return outputs


def one_chunk(jobs: Sequence[Job], name: str) -> Sequence[Job]:
    """The jobs of the chunk called `name`. Raises InvalidValue, which lists the names that there are."""
    parts = dict(chunks_of(jobs))
    if name not in parts:
        known = f"{min(parts)} to {max(parts)}" if parts else "none"
        raise InvalidValue(f"no chunk {name[:40]!r}; there is {known}")
    return parts[name]


def _include(plan: Plan, jobs: Sequence[Job], savers: frozenset[str]) -> dict[str, Any]:
    artifact = {build.key: build.artifact for build in plan.builds}
    return {"include": [_cell(job, artifact[job.legs[0].build_key], save=job.id in savers) for job in jobs]}


def _cell(job: Job, build_artifact: str, *, save: bool) -> dict[str, Any]:
    first = job.legs[0]
    key = (first.model_key or "") if len(job.legs) == 1 else ""
    receipts = f"receipts-{job.id}"
    limits.check_key(first.build_key)
    limits.check_artifact_name(receipts)
    limits.check_job_name(job.name)
    if key:
        limits.check_key(key)
    return {
        "id": job.id,
        "name": job.name,
        "legs": " ".join(leg.id for leg in job.legs),
        "runs-on": list(first.runs_on),
        "backend": first.backend,
        "subject": first.subject,
        "build_key": first.build_key,
        "build_artifact": build_artifact,
        "model_key": key,
        "cache_backend": first.cache.store,
        "save_cache": save,
        "receipts": receipts,
        "timeout_minutes": job.timeout_minutes,
    }


def _savers(jobs: Sequence[Job]) -> frozenset[str]:
    """One job for each model key that GitHub's cache holds: legs that all save the same key only hit the rate limit."""
    first: dict[str, str] = {}
    for job in jobs:
        leg = job.legs[0]
        if leg.cache.store == SHARED_CACHE and leg.model_key:
            first.setdefault(leg.model_key, job.id)
    return frozenset(first.values())


def _needed(plan: Plan, jobs: Sequence[Job]) -> Plan:
    """The plan with the builds that `jobs` wait for and no other."""
    keys = {job.legs[0].build_key for job in jobs}
    if len(keys) == len(plan.builds):
        return plan
    from dataclasses import replace

    return replace(plan, builds=tuple(build for build in plan.builds if build.key in keys))


def _check_distinct(plan: Plan) -> None:
    ids = {leg.id.lower() for leg in plan.legs}
    if len(ids) != len(plan.legs):
        raise InvalidValue("two legs of the plan have the same id; make the family names unique")
