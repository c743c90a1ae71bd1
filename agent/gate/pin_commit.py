"""The pin commit: one file, on exactly the commit that was tested, never forced.

If the branch moved meanwhile, the policy decides (see `agent.gate.moved`). A refusal is classified and never tried again
blindly: only a branch that moved is looked at again, from the start, a few times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from agent.errors import InternalError, PinFileInvalid, PushRefused
from agent.gate.message import commit_message, pull_request_text
from agent.gate.moved import CERTIFIED_INPUTS, MovedPolicy, certified_among, changed_paths
from agent.gate.pin_file import Layout
from agent.gate.refusal import Refusal
from agent.gate.repository import PullRequest, Repository
from agent.gate.verdict import Verdict
from matrixgen.leg import Plan

_TRIES = 3
_REGULAR_FILE = "100644"
_WANTS_PULL_REQUEST = frozenset({Refusal.PROTECTED, Refusal.UNSIGNED})


class PublishState(StrEnum):
    """What became of a certified pin."""

    PUBLISHED = "published"
    ALREADY_PUBLISHED = "already_published"
    DRY_RUN = "dry_run"
    TEST_AGAIN = "test_again"
    CERTIFIED_NOT_PUBLISHED = "certified_not_published"


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """How to publish.

    Attributes:
        branch: the branch that holds the pin.
        layout, pin_file: how and where the pin is kept.
        policy: what to do if the branch moved.
        inputs: what counts as a certified input; folders end in ``/``.
        pull_request: open one where the branch does not take a push.
        dry_run: decide everything and write nothing.
    """

    branch: str
    layout: Layout = Layout.JSON
    pin_file: str | None = None
    policy: MovedPolicy = MovedPolicy.RETEST_IF_INPUTS_MOVED
    inputs: Sequence[str] = CERTIFIED_INPUTS
    pull_request: bool = True
    dry_run: bool = False

    @property
    def path(self) -> str:
        """Path of the pin file in the repository."""
        return self.pin_file or self.layout.default_path


@dataclass(frozen=True, kw_only=True)
class Published:
    """The outcome.

    Attributes:
        state: what became of it.
        reason: one line.
        base: the commit that was tested.
        parent: parent of the pin commit; the tip at the last look where no commit was made.
        commit: the pin commit; None where none was made.
        changed: certified inputs that moved since the test.
        refusal: kind of refusal; None where nothing was refused.
        pull_request: its address; None where none was opened.
        message: text of the commit.
    """

    state: PublishState
    reason: str
    base: str
    parent: str
    commit: str | None = None
    changed: tuple[str, ...] = ()
    refusal: Refusal | None = None
    pull_request: str | None = None
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"schema_version": 1, **asdict(self), "changed": list(self.changed)}


def publish(repository: Repository, plan: Plan, verdict: Verdict, base: str, options: PublishOptions) -> Published:
    """Move the pin of `options.branch` to that of `plan`; `base` is the commit that was tested (see `require_current`).

    Raises:
        PinFileInvalid: the pin file is not there, or not what it should be.
        PushRefused: the server refused to be read.
        RepositoryUnusable: the repository could not be asked.
    """
    text = options.layout.text(plan.pin)
    tip = repository.tip(options.branch)
    for _ in range(_TRIES):
        decided = _decide(repository, plan, base, tip, text, options)
        if decided is not None:
            return decided
        old = _pin_at(repository, tip, options)
        message = commit_message(verdict, old)
        if options.dry_run:
            reason = f"would set {options.path} from {old} to {plan.pin.commit} on {tip}"
            return Published(state=PublishState.DRY_RUN, reason=reason, base=base, parent=tip, message=message)
        attempt = _Attempt(repository, options, base, tip, message)
        try:
            attempt.commit = _make_commit(repository, tip, text, message, options)
            repository.advance(options.branch, attempt.commit)
        except PushRefused as error:
            now = repository.tip(options.branch)
            if error.kind != Refusal.MOVED or now == tip:
                return attempt.refused(error)
            tip = now
            continue
        return attempt.check()
    reason = f"{options.branch} moved {_TRIES} times while the commit was made: start again when it is quiet"
    return Published(state=PublishState.TEST_AGAIN, reason=reason, base=base, parent=tip, refusal=Refusal.MOVED)


@dataclass
class _Attempt:
    """One try to publish on one tip."""

    repository: Repository
    options: PublishOptions
    base: str
    tip: str
    message: str
    commit: str | None = None

    def check(self) -> Published:
        """A push that reported success and changed nothing is not a success."""
        now = self.repository.tip(self.options.branch)
        if self.commit is None or not self.repository.is_ancestor(self.commit, now):
            return self._outcome(
                PublishState.CERTIFIED_NOT_PUBLISHED,
                f"the push was accepted, but {self.options.branch} is at {now} without {self.commit}",
                refusal=Refusal.OTHER,
            )
        return self._outcome(PublishState.PUBLISHED, f"{self.options.branch} is at {self.commit}")

    def refused(self, error: PushRefused) -> Published:
        """The branch did not take the commit: ask for a pull request where a rule wants one, else say so."""
        kind, request = Refusal(error.kind), None
        reason = f"{self.options.branch} did not take the commit: {error}"
        if self.commit and kind in _WANTS_PULL_REQUEST and self.options.pull_request:
            title, body = pull_request_text(self.message)
            asked = PullRequest(
                head=f"llama-pin/{self.commit[:12]}",
                base=self.options.branch,
                commit=self.commit,
                title=title,
                body=body,
            )
            try:
                request = self.repository.open_pull_request(asked)
                reason += "; a pull request asks for it"
            except PushRefused as second:
                reason += f"; a pull request was refused too: {second}"
        return self._outcome(PublishState.CERTIFIED_NOT_PUBLISHED, reason, refusal=kind, pull_request=request)

    def _outcome(
        self, state: PublishState, reason: str, *, refusal: Refusal | None = None, pull_request: str | None = None
    ) -> Published:
        return Published(
            state=state,
            reason=reason,
            base=self.base,
            parent=self.tip,
            commit=self.commit,
            refusal=refusal,
            pull_request=pull_request,
            message=self.message,
        )


def _decide(
    repository: Repository, plan: Plan, base: str, tip: str, text: str, options: PublishOptions
) -> Published | None:
    """What is settled before any commit is made; None where a commit on `tip` is right."""

    def outcome(state: PublishState, reason: str, changed: tuple[str, ...] = ()) -> Published:
        return Published(state=state, reason=reason, base=base, parent=tip, changed=changed)

    if _content(repository, tip, options) == text.encode():
        return outcome(PublishState.ALREADY_PUBLISHED, f"{options.branch} has pin {plan.pin.commit} already")
    if tip == base:
        return None
    if not repository.is_ancestor(base, tip):
        return outcome(
            PublishState.TEST_AGAIN,
            f"{options.branch} was rewritten: {base} is not in its history, test again on {tip}",
        )
    moved = changed_paths(repository.listing(base), repository.listing(tip))
    inputs = (options.path, *options.inputs)
    if certified := certified_among(moved, inputs):
        return outcome(
            PublishState.TEST_AGAIN,
            f"{options.branch} moved to {tip} and {len(certified)} certified input(s) with it: test again",
            certified,
        )
    if options.policy is MovedPolicy.RETEST_ALWAYS:
        return outcome(
            PublishState.TEST_AGAIN,
            f"{options.branch} moved to {tip}, and the policy {options.policy} wants a new test",
        )
    return None


def _content(repository: Repository, commit: str, options: PublishOptions) -> bytes:
    entry = repository.listing(commit).get(options.path)
    if entry is None or entry.mode != _REGULAR_FILE:
        what = "is missing" if entry is None else f"is no plain file (mode {entry.mode})"
        raise PinFileInvalid(f"{options.path} {what} at {commit}: name the right one with --pin-file")
    return repository.read(commit, options.path)


def _pin_at(repository: Repository, commit: str, options: PublishOptions) -> str:
    return options.layout.commit_in(_content(repository, commit, options), options.path)


def _make_commit(repository: Repository, parent: str, text: str, message: str, options: PublishOptions) -> str:
    commit = repository.make_commit(parent, options.path, text, message)
    changed = changed_paths(repository.listing(parent), repository.listing(commit))
    if changed != (options.path,) or not repository.is_ancestor(parent, commit):
        raise InternalError(
            f"commit {commit} changes {', '.join(changed) or 'nothing'} instead of {options.path} alone"
        )
    return commit
