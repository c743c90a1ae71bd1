"""Limits of GitHub Actions, all in one place, and the checks that everything emitted passes.

Sources, all in GitHub's documentation at docs.github.com/actions:

* 256 jobs for one matrix: "Usage limits" of workflows, and `jobs.<job_id>.strategy.matrix`.
* 1 MiB for the outputs of one job, 50 MiB for one run, counted as UTF-16: "Passing information between jobs".
* 512 characters for a cache key, no commas: README of actions/cache, "Inputs", and its key check.
* `" : < > | * ? CR LF \\ /` are refused in artifact names: README of actions/upload-artifact.
* 360 minutes for a job on a hosted runner, 5 days on a self-hosted one: "Usage limits".
* 1 MiB for one step summary, after which GitHub drops it whole: "Workflow commands", "Adding a job summary".
* 200 characters for the name of a job: our own bound, since GitHub documents none and shortens long names on its pages.
* 10 GB of caches for a repository before eviction: "Caching dependencies", "Usage limits".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrixgen.errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MATRIX_LEGS = 256
MAX_OUTPUT_BYTES = 2**20
MAX_KEY = 512
MAX_ARTIFACT_NAME = 255
MAX_JOB_NAME = 200
MAX_SUMMARY_BYTES = 2**20
MAX_HOSTED_MINUTES = 360
MAX_SELF_HOSTED_MINUTES = 5 * 24 * 60
_FORBIDDEN_IN_ARTIFACT = frozenset('":<>|*?\r\n\\/')


def utf16_bytes(text: str) -> int:
    """Bytes of `text` as GitHub counts them."""
    return 2 * len(text) if text.isascii() else len(text.encode("utf-16-le"))


def check_legs(count: int, axes: Mapping[str, int]) -> None:
    """Refuse a matrix that GitHub would not run; nothing is ever cut off silently."""
    if count > MAX_MATRIX_LEGS:
        shape = " x ".join(f"{size} {name}" for name, size in axes.items())
        raise LimitExceeded(
            f"{count} legs ({shape}{_crossing(axes)}), but a matrix holds {MAX_MATRIX_LEGS}; pack small legs with "
            "--pack MINUTES, split it with --chunked, or narrow it by --tier, --backend, --family"
        )


def _crossing(axes: Mapping[str, int]) -> str:
    """Which axis is one too many, counted in their order; empty where the axes alone do not say."""
    product = 1
    for name, size in axes.items():
        product *= size
        if product > MAX_MATRIX_LEGS:
            return f", the {name} cross the limit"
    return ""


def check_outputs(outputs: Mapping[str, str]) -> None:
    """Refuse outputs whose sum is above what one job may hand on."""
    total = sum(utf16_bytes(name) + utf16_bytes(value) for name, value in outputs.items())
    if total > MAX_OUTPUT_BYTES:
        largest = max(outputs, key=lambda name: len(outputs[name]))
        raise LimitExceeded(
            f"the outputs take {total} bytes as UTF-16 and a job may hand on {MAX_OUTPUT_BYTES}; the largest is "
            f"{largest}. Select fewer legs, or let each chunk's own workflow print its part with --chunk NAME"
        )


def check_key(key: str) -> None:
    """Refuse a cache key that actions/cache would refuse."""
    if not key or len(key) > MAX_KEY or "," in key:
        raise LimitExceeded(f"cache key of {len(key)} characters {key[:60]!r}: 1 to {MAX_KEY} characters, no comma")


def check_artifact_name(name: str) -> None:
    """Refuse an artifact name that actions/upload-artifact would refuse."""
    if not name or len(name) > MAX_ARTIFACT_NAME or _FORBIDDEN_IN_ARTIFACT.intersection(name):
        raise LimitExceeded(
            f'artifact name {name[:60]!r}: 1 to {MAX_ARTIFACT_NAME} characters, none of " : < > | * ? \\ /'
        )


def check_job_name(name: str) -> None:
    """Refuse a job name that could not become the name of a check."""
    if not name or len(name) > MAX_JOB_NAME:
        raise LimitExceeded(f"job name of {len(name)} characters: 1 to {MAX_JOB_NAME}")


def fit_summary(text: str) -> str:
    """`text`, cut at a line so that GitHub shows it: a summary of more than 1 MiB is dropped whole. The cut is told."""
    if len(text.encode()) <= MAX_SUMMARY_BYTES:
        return text
    note = "\n\n... cut: a step summary holds 1 MiB\n"
    kept = text.encode()[: MAX_SUMMARY_BYTES - len(note)].decode(errors="ignore")
    return kept.rpartition("\n")[0] + note


def cap_minutes(minutes: int, *, self_hosted: bool) -> int:
    """The time-out that the runner kind allows."""
    return min(minutes, MAX_SELF_HOSTED_MINUTES if self_hosted else MAX_HOSTED_MINUTES)
