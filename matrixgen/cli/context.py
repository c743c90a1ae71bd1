"""Where this process runs: whose code a workflow executes, and whether it may save caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Events of GitHub that a person without rights can start with code or words of their own.
FOREIGN_EVENTS = (
    "pull_request",
    "pull_request_target",
    "pull_request_review",
    "pull_request_review_comment",
    "issue_comment",
    "workflow_run",
)
MAX_BYTES = 16 * 2**20


def foreign_code(environ: Mapping[str, str]) -> str | None:
    """Why code of a fork may run in this workflow, or None.

    Of a pull request, only one whose head and base are proven to be the same repository is ours. What cannot be read is foreign.
    """
    event = environ.get("GITHUB_EVENT_NAME", "")
    if event not in FOREIGN_EVENTS:
        return None
    head, base = _repositories(environ.get("GITHUB_EVENT_PATH", ""))
    if head is not None and head == base:
        return None
    return f"event {event} from {head or 'an unknown repository'}"


def may_save(environ: Mapping[str, str]) -> bool:
    """True on the default branch main, for a trusted event: what another branch saves, main would restore."""
    return environ.get("GITHUB_REF") == "refs/heads/main" and foreign_code(environ) is None


def _repositories(path: str) -> tuple[str | None, str | None]:
    """(head, base) of the event's pull request or run."""
    try:
        with Path(path).open("rb") as file:
            data = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None, None
    if isinstance(data, dict):
        request, run = data.get("pull_request"), data.get("workflow_run")
        if isinstance(request, dict):
            return _name(_inner(request, "head", "repo")), _name(_inner(request, "base", "repo"))
        if isinstance(run, dict):
            return _name(run.get("head_repository")), _name(data.get("repository"))
    return None, None


def _inner(data: dict[str, Any], *keys: str) -> Any:
    value: Any = data
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _name(repository: Any) -> str | None:
    name = repository.get("full_name") if isinstance(repository, dict) else None
    return name if isinstance(name, str) and name else None
