"""What the jobs before the gate came to: GitHub's `needs` context. Exactly `success` counts, and never instead of receipts."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent.errors import NeedsInvalid
from agent.gate.reason import Cause, Reason
from agent.gate.text import plain

_MAX_CHARACTERS = 2**20
_CAUSES = {"failure": Cause.JOB_FAILED, "cancelled": Cause.JOB_CANCELLED, "skipped": Cause.JOB_SKIPPED}
_WORDS = {"failure": "failed", "cancelled": "was cancelled", "skipped": "was skipped"}


def parse_needs(text: str) -> dict[str, str]:
    """Job -> result, from `${{ toJSON(needs) }}`. A job without a result has the empty one, which blocks.

    Raises:
        NeedsInvalid: `text` is not such an object.
    """
    try:
        data = json.loads(text) if len(text) <= _MAX_CHARACTERS else None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or not all(isinstance(job, dict) for job in data.values()):
        raise NeedsInvalid(
            "--needs is not a `needs` context: an object of jobs, each an object with its `result`. "
            "Pass ${{ toJSON(needs) }} through an environment variable"
        )
    return {name: job["result"] if isinstance(job.get("result"), str) else "" for name, job in data.items()}


def job_reasons(jobs: Mapping[str, str] | None) -> tuple[Reason, ...]:
    """A reason for each job that is anything else than `success`; none where no context was given."""
    if jobs is None:
        return ()
    if not jobs:
        return (Reason(cause=Cause.JOB_UNKNOWN, message="the gate needs no job at all: add `needs:` to its job"),)
    return tuple(_reason(name, jobs[name]) for name in sorted(jobs) if jobs[name] != "success")


def _reason(job: str, result: str) -> Reason:
    name = plain(job, 100)
    if result == "failure" and name.lower().startswith("build"):
        return Reason(cause=Cause.BUILD_FAILED, message=f"job {name} failed: this pin does not even build")
    if result in _CAUSES:
        return Reason(cause=_CAUSES[result], message=f"job {name} {_WORDS[result]}")
    return Reason(cause=Cause.JOB_UNKNOWN, message=f"job {name} ended as {plain(result, 40)!r}, which is not success")
