"""The pin commit: one file, on exactly the commit that was tested, never forced.

If the branch moved meanwhile, the policy decides (see `agent.gate.moved`). A refusal is classified and never tried again
blindly: only a branch that moved is looked at again, from the start, a few times.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from agent.errors import InternalError, PinFileInvalid, PushRefused
from agent.gate.message import commit_message, pull_request_text
from agent.gate.moved import MovedPolicy, certified_among, changed_paths
from agent.gate.pin_file import Layout
from agent.gate.publication import Published, PublishOptions, PublishState
from agent.gate.refusal import Refusal
from agent.gate.repository import PullRequest, Repository
from agent.gate.verdict import Verdict
from matrixgen.leg import Plan

_TRIES = 3
_REGULAR_FILE = "100644"
_WANTS_PULL_REQUEST = frozenset({Refusal.PROTECTED, Refusal.UNSIGNED})


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
    if queue := _queue_problem(repository, plan, tip, options):
        return outcome(PublishState.TEST_AGAIN, queue)
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


def _queue_problem(repository: Repository, plan: Plan, commit: str, options: PublishOptions) -> str | None:
    """In upstream's layout the patches lie beside the pin file: they must be those that the plan tested, in that order."""
    if options.layout is not Layout.UPSTREAM:
        return None
    folder = f"{options.path.rpartition('/')[0]}/patches/".removeprefix("/")
    names = sorted(path for path in repository.listing(commit) if path.startswith(folder) and path.endswith(".patch"))
    found = [(path.removeprefix(folder), sha256(repository.read(commit, path)).hexdigest()) for path in names]
    if found == [(patch.name, patch.sha256) for patch in plan.pin.patches]:
        return None
    return f"{folder} of {commit} holds {len(found)} patch(es) that are not the queue of the plan: test again"


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
