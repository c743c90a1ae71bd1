"""`skippy-agent publish`."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agent.errors import AgentError, PushRefused, TokenRejected, UsageError, VerdictRefused
from agent.gate.check_run import check_run
from agent.gate.collect import collect
from agent.gate.current import require_current
from agent.gate.git_repository import GitRepository
from agent.gate.github_repository import GithubRepository
from agent.gate.moved import CERTIFIED_INPUTS, MovedPolicy
from agent.gate.pin_commit import publish
from agent.gate.pin_file import Layout
from agent.gate.producers import Producer, check_problem
from agent.gate.publication import Published, PublishOptions, PublishState
from agent.gate.refusal import Refusal
from agent.gate.verdict import Verdict, judge
from agent.gate.verdict_file import read_verdict
from agent.reporters.markdown import render_markdown
from matrixgen.files import write_atomically
from matrixgen.plan import read_plan

_GOOD = frozenset({PublishState.PUBLISHED, PublishState.ALREADY_PUBLISHED, PublishState.DRY_RUN})
_FAMILIES = "manifests/families.json"


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    """What the user asked for; see `skippy-agent publish --help`."""

    plan: Path | None
    verdict: Path | None
    receipts: Path | None
    git: str | None
    repository: str | None
    api: str
    branch: str
    layout: str
    pin_file: str | None
    if_main_moved: str
    certified_inputs: tuple[str, ...]
    max_age_hours: float
    pull_request: bool
    require_builds: bool
    check_run: str | None
    require_checks: tuple[str, ...]
    workflow: str | None
    check_app_id: int
    preflight: bool
    dry_run: bool
    state_file: Path | None
    as_json: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From the options of the command line.

        Raises:
            UsageError: they do not go together.
        """
        request = cls(**options)
        if request.git is None and request.repository is None:
            raise UsageError(
                "where to publish: give --repository OWNER/NAME, or --git with an address that git reaches"
            )
        if not request.preflight and (request.plan is None or request.verdict is None):
            raise UsageError("publishing needs --plan and --verdict")
        if request.git is not None and (request.preflight or request.check_run or request.require_checks):
            raise UsageError("--preflight, --check-run and --require-check ask GitHub: leave out --git")
        if request.require_checks and request.workflow is None:
            raise UsageError("--require-check counts only checks of one workflow: name its file with --workflow")
        return request


def run(request: PublishRequest) -> int:
    """Publish, or say why not; returns the exit code."""
    with _open(request) as repository:
        if request.preflight:
            if not isinstance(repository, GithubRepository):
                raise UsageError("--preflight asks GitHub: give --repository")
            _say("".join(f"{line}\n" for line in repository.preflight(request.branch)))
            return 0
        if request.plan is None or request.verdict is None:
            raise UsageError("publishing needs --plan and --verdict")
        plan, verdict = read_plan(request.plan), read_verdict(request.verdict)
        if isinstance(repository, GithubRepository) and request.check_run:
            _make_check_run(repository, request.check_run, verdict)
        base = require_current(verdict, plan, now=dt.datetime.now(dt.UTC), max_age_hours=request.max_age_hours)
        if request.require_builds and not verdict.context.builds_checked:
            raise VerdictRefused("the libraries were not traced to the builds: judge again with `gate --builds`")
        if request.receipts and judge(plan, collect(request.receipts), verdict.context) != verdict:
            raise VerdictRefused(
                f"the receipts in {request.receipts} give another verdict: run `skippy-agent gate` anew"
            )
        if isinstance(repository, GithubRepository):
            _require_checks(repository, request, verdict, base)
        options = PublishOptions(
            branch=request.branch,
            layout=Layout(request.layout),
            pin_file=request.pin_file,
            policy=MovedPolicy(request.if_main_moved),
            inputs=(*CERTIFIED_INPUTS, *request.certified_inputs),
            pull_request=request.pull_request,
            dry_run=request.dry_run,
        )
        try:
            published = publish(repository, plan, verdict, base, options)
        except AgentError as error:
            _write_state(_stopped(error, base), request)
            raise
    _report(published, request)
    return 0 if published.state in _GOOD or published.pull_request else 1


@contextlib.contextmanager
def _open(request: PublishRequest) -> Iterator[GitRepository | GithubRepository]:
    if request.git is not None:
        with GitRepository(request.git) as repository:
            yield repository
        return
    token = os.environ.get("GITHUB_TOKEN") or os.environ.get("GH_TOKEN")
    if not token:
        raise TokenRejected("no token: put one that may write contents into the environment variable GITHUB_TOKEN")
    yield GithubRepository(str(request.repository), token, api=request.api)


def _make_check_run(repository: GithubRepository, name: str, verdict: Verdict) -> None:
    commit = verdict.context.base_commit
    if commit is None:
        raise VerdictRefused("the verdict does not say which commit was tested, so no check run can be made")
    try:
        families = repository.read(commit, _FAMILIES).decode("utf-8", "replace")
    except PushRefused:
        families = ""  # a product that keeps its manifests elsewhere; the annotations stand at line 1
    conclusion, output = check_run(verdict, render_markdown(verdict), families, _FAMILIES)
    repository.create_check_run(name, commit, conclusion, output)


def _require_checks(repository: GithubRepository, request: PublishRequest, verdict: Verdict, base: str) -> None:
    if not request.require_checks:
        return
    if verdict.context.run_id is None or request.workflow is None:
        raise VerdictRefused("the verdict names no run, so no check can be traced to it")
    producer = Producer(
        app_id=request.check_app_id, workflow=request.workflow, run_id=verdict.context.run_id, head_sha=base
    )
    checks = repository.checks(base)
    for name in request.require_checks:
        if problem := check_problem(checks, name, producer):
            raise VerdictRefused(f"{problem}. Publish from the run whose checks are green")


def _stopped(error: AgentError, base: str) -> Published:
    kind = Refusal(error.kind) if isinstance(error, PushRefused) else None
    return Published(
        state=PublishState.CERTIFIED_NOT_PUBLISHED, reason=str(error), base=base, parent=base, refusal=kind
    )


def _write_state(published: Published, request: PublishRequest) -> None:
    if request.state_file:
        write_atomically(request.state_file, json.dumps(published.to_json(), indent=1) + "\n")


def _report(published: Published, request: PublishRequest) -> None:
    _write_state(published, request)
    if request.as_json:
        _say(json.dumps(published.to_json()) + "\n")
        return
    _say(f"{published.state}: {published.reason}\n")
    _say("".join(f"  moved: {path}\n" for path in published.changed))
    if published.pull_request:
        _say(f"  pull request: {published.pull_request}\n")
    if published.state is PublishState.DRY_RUN:
        _say("\n" + published.message)


def _say(text: str) -> None:
    sys.stdout.write(text)
