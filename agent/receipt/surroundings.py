"""What a receipt says of the machine and of the CI run: read once, and nothing that could be a secret."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# identity of a GitHub Actions run; none of them is a secret
_RUN_VARIABLES = {
    "repository": "GITHUB_REPOSITORY",
    "sha": "GITHUB_SHA",
    "workflow": "GITHUB_WORKFLOW_REF",
    "run_id": "GITHUB_RUN_ID",
    "attempt": "GITHUB_RUN_ATTEMPT",
    "job": "GITHUB_JOB",
    "runner_name": "RUNNER_NAME",
}


def describe_runner() -> dict[str, Any]:
    """Operating system, processor, cores that this process may use, and memory in bytes (None where it is not known)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return {
        "os": platform.system().lower(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": cores,
        "memory_bytes": _memory(),
        "python": platform.python_version(),
    }


def describe_run(environment: Mapping[str, str]) -> dict[str, str]:
    """The identity of the CI run in `environment`; empty outside of one."""
    return {name: environment[variable] for name, variable in _RUN_VARIABLES.items() if environment.get(variable)}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
