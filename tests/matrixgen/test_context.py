"""Whose code runs: code of a fork never reaches a self-hosted machine, and saves no cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.cli.context import FOREIGN_EVENTS, foreign_code, may_save

Run = Callable[..., Any]
OURS = {"full_name": "owner/repo"}
FORK = {"full_name": "stranger/repo"}


def pull_request(head: Any, base: Any = OURS) -> dict[str, Any]:
    """The part of the event that matters."""
    return {"pull_request": {"head": {"repo": head}, "base": {"repo": base}}}


FOREIGN: list[Any] = [
    pull_request(FORK),
    pull_request(None),
    pull_request({}),
    pull_request(OURS, None),
    pull_request({"full_name": ""}, {"full_name": ""}),
    pull_request({"full_name": ["owner/repo"]}, {"full_name": ["owner/repo"]}),
    {"pull_request": None},
    {"pull_request": {"head": None, "base": None}},
    {"pull_request": {}},
    {"workflow_run": {"head_repository": FORK}, "repository": OURS},
    {"workflow_run": {"head_repository": None}, "repository": OURS},
    {"issue": {"pull_request": {}}},
    {},
    [],
    None,
]


@pytest.mark.parametrize("event", FOREIGN_EVENTS)
@pytest.mark.parametrize("data", FOREIGN)
def test_what_is_not_proven_ours_is_foreign(tmp_path: Path, event: str, data: Any) -> None:
    """A32: a fork, a deleted fork, an event that says nothing: all are foreign."""
    path = tmp_path / "event.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    environ = {"GITHUB_EVENT_NAME": event, "GITHUB_EVENT_PATH": str(path), "GITHUB_REF": "refs/heads/main"}
    assert foreign_code(environ)
    assert not may_save(environ)


@pytest.mark.parametrize("path", ["", "/nonexistent", "/dev/null", "\0"])
def test_an_event_that_cannot_be_read_is_foreign(path: str) -> None:
    """No file, no proof."""
    assert foreign_code({"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": path})


def test_deep_nesting_is_foreign(tmp_path: Path) -> None:
    """A file that no parser can read proves nothing."""
    path = tmp_path / "event.json"
    path.write_text("[" * 100_000, encoding="utf-8")
    assert foreign_code({"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(path)})


def test_our_own_pull_request_is_ours(tmp_path: Path) -> None:
    """Head and base are the same repository, so its author may push there anyway."""
    path = tmp_path / "event.json"
    path.write_text(json.dumps(pull_request(OURS)), encoding="utf-8")
    environ = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(path), "GITHUB_REF": "refs/pull/7/merge"}
    assert foreign_code(environ) is None
    assert not may_save(environ)


@pytest.mark.parametrize("event", ["push", "schedule", "workflow_dispatch", ""])
def test_our_own_events_are_ours(event: str) -> None:
    """What only people with rights can start; and no workflow at all."""
    assert foreign_code({"GITHUB_EVENT_NAME": event}) is None


@pytest.mark.parametrize(
    ("ref", "saves"),
    [
        ("refs/heads/main", True),
        ("refs/heads/x", False),
        ("refs/pull/7/merge", False),
        ("refs/tags/main", False),
        ("", False),
    ],
)
def test_only_main_saves(run: Run, monkeypatch: pytest.MonkeyPatch, ref: str, saves: bool) -> None:
    """F15: `save_cache` is false everywhere else."""
    monkeypatch.setenv("GITHUB_REF", ref)
    monkeypatch.setenv("GITHUB_EVENT_NAME", "push")
    matrix = json.loads(run("emit", "--tier", "1").out)["include"]
    assert any(entry["save_cache"] for entry in matrix) == saves


@pytest.mark.parametrize("event", ["llama-bump", "release", "manual-full", "patch-edit", "nightly", "radix-cache"])
def test_a_fork_cannot_ask_for_another_event(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, event: str
) -> None:
    """Whatever event a workflow of a fork's pull request names, no self-hosted label comes out."""
    path = tmp_path / "event.json"
    path.write_text(json.dumps(pull_request(FORK)), encoding="utf-8")
    monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(path))
    result = run("emit", "--event", event, "--backend", "cpu")
    assert result.code == 4
    assert "untrusted" in result.err or "GiB" in result.err
    assert "self-hosted" not in result.out
    result = run("emit", "--event", event, "--backend", "cpu", "--subject", "twin")
    assert result.code == 0
    assert "self-hosted" not in result.out
    for backend in ("cuda", "metal"):
        assert run("emit", "--event", event, "--backend", backend, "--subject", "twin").code == 4
