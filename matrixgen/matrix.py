"""The GitHub Actions matrices of a plan: only what a job needs to start, so that no limit is ever near."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrixgen import limits
from matrixgen.errors import InvalidValue

if TYPE_CHECKING:
    from matrixgen.plan import Plan


def leg_matrix(plan: Plan) -> dict[str, Any]:
    """`{"include": [...]}`, one fully expanded entry a leg; no entry holds null.

    Raises LimitExceeded above 256 legs and InvalidValue when two legs have the same id.
    """
    ids = [leg.id for leg in plan.legs]
    if len(set(ids)) != len(ids):
        raise InvalidValue("two legs of the plan have the same id; make the family names unique")
    limits.check_legs(
        len(ids),
        {
            "families": len({leg.family.family for leg in plan.legs}),
            "backends": len({leg.backend for leg in plan.legs}),
        },
    )
    for leg in plan.legs:
        limits.check_key(leg.build_key)
        if leg.model_key is not None:
            limits.check_key(leg.model_key)
    return {
        "include": [
            {
                "id": leg.id,
                "name": f"{leg.family.family} ({leg.backend})",
                "runs-on": list(leg.runs_on),
                "backend": leg.backend,
                "subject": leg.subject,
                "build_key": leg.build_key,
                "build_artifact": next(build.artifact for build in plan.builds if build.key == leg.build_key),
                "model_key": leg.model_key or "",
                "timeout_minutes": leg.timeout_minutes,
            }
            for leg in plan.legs
        ]
    }


def build_matrix(plan: Plan) -> dict[str, Any]:
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
            }
            for build in plan.builds
        ]
    }


def github_outputs(plan: Plan) -> dict[str, str]:
    """All outputs of the plan job, by name, checked against GitHub's limits."""
    from json import dumps

    def compact(value: Any) -> str:
        return dumps(value, separators=(",", ":"), ensure_ascii=True)

    outputs = {
        "matrix": compact(leg_matrix(plan)),
        "builds": compact(build_matrix(plan)),
        "has_legs": "true" if plan.legs else "false",
        "count": str(len(plan.legs)),
        "plan_digest": plan.digest,
    }
    limits.check_outputs(outputs)
    return outputs
