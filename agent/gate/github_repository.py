"""A repository on GitHub, through PyGithub: the Git Data API, pull requests, checks and the rights of the token."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agent.errors import PushRefused, RepositoryUnusable, TokenRejected
from agent.gate.producers import CheckFacts
from agent.gate.refusal import Refusal, classify
from agent.gate.repository import Entry, PullRequest
from agent.gate.text import plain

if TYPE_CHECKING:
    from github.CheckRun import CheckRun
    from github.GithubApp import GithubApp
    from github.Repository import Repository as Remote

DEFAULT_API = "https://api.github.com"
_RUN_IN_URL = re.compile(r"/actions/runs/([0-9]+)(?:/|$)", re.ASCII)
_INFRA = frozenset({Refusal.UNAVAILABLE, Refusal.RATE_LIMITED})
_TIMEOUT_SECONDS = 60


class GithubRepository:
    """The repository `name` (``owner/name``). Commits name no author, so GitHub signs them for an app's token."""

    def __init__(self, name: str, token: str, *, api: str = DEFAULT_API) -> None:
        from github import Auth, Github

        # no retry: a write that was refused is not sent again, and one that was lost is found by the next run
        client = Github(
            base_url=api,
            auth=Auth.Token(token),
            retry=None,
            timeout=_TIMEOUT_SECONDS,
            seconds_between_requests=None,
            seconds_between_writes=None,
        )
        self._listings: dict[str, Mapping[str, Entry]] = {}
        with _talking(f"repository {name}"):
            self._remote: Remote = client.get_repo(name)

    def preflight(self, branch: str) -> tuple[str, ...]:
        """What the token may do, in words. Writes one unreachable blob, which GitHub clears away.

        Raises:
            TokenRejected: it may not write contents.
        """
        with _talking(f"branch {branch}"):
            protected = self._remote.get_branch(branch).protected
        try:
            with _talking("writing an object"):
                self._remote.create_git_blob("skippy-ci asks whether it may write\n", "utf-8")
        except PushRefused as error:
            raise TokenRejected(
                f"the token may not write to {self._remote.full_name} ({error.message}): give the job "
                "`permissions: contents: write`, and `pull-requests: write` where a pull request shall be opened"
            ) from error
        where = "protected: a pull request may be needed" if protected else "not protected"
        return (f"{self._remote.full_name} can be written", f"{branch} is {where}")

    def tip(self, branch: str) -> str:
        """Commit of a branch."""
        with _talking(f"branch {branch}"):
            return self._remote.get_git_ref(f"heads/{branch}").object.sha

    def listing(self, commit: str) -> Mapping[str, Entry]:
        """Every file of a commit."""
        if commit not in self._listings:
            with _talking(f"tree of {commit}"):
                tree = self._remote.get_git_tree(self._remote.get_git_commit(commit).tree.sha, recursive=True)
                if tree.truncated:
                    raise RepositoryUnusable(f"GitHub cut the tree of {commit} off: publish with --git instead")
                self._listings[commit] = {
                    item.path: Entry(item.mode, item.sha) for item in tree.tree if item.type != "tree"
                }
        return self._listings[commit]

    def read(self, commit: str, path: str) -> bytes:
        """Bytes of a file of a commit."""
        entry = self.listing(commit).get(path)
        if entry is None:
            raise PushRefused(Refusal.MISSING, f"{path} is not in {commit}")
        with _talking(f"{path} of {commit}"):
            return base64.b64decode(self._remote.get_git_blob(entry.oid).content)

    def is_ancestor(self, old: str, new: str) -> bool:
        """True if `new` is `old` or comes after it."""
        try:
            with _talking(f"comparison of {old} and {new}"):
                return self._remote.compare(old, new).status in ("ahead", "identical")
        except PushRefused as error:
            if error.kind == Refusal.MISSING:
                return False
            raise

    def make_commit(self, parent: str, path: str, content: str, message: str) -> str:
        """A commit on `parent` that sets one file."""
        from github import InputGitTreeElement

        with _talking("making the commit"):
            base = self._remote.get_git_commit(parent)
            element = InputGitTreeElement(path, "100644", "blob", content=content)
            tree = self._remote.create_git_tree([element], base_tree=base.tree)
            return self._remote.create_git_commit(message, tree, [base]).sha

    def advance(self, branch: str, commit: str) -> None:
        """Fast-forward a branch; GitHub refuses anything else."""
        with _talking(f"moving {branch}"):
            self._remote.get_git_ref(f"heads/{branch}").edit(commit, force=False)

    def open_pull_request(self, request: PullRequest) -> str:
        """Make the branch and the pull request."""
        with _talking(f"pull request from {request.head}"):
            self._remote.create_git_ref(f"refs/heads/{request.head}", request.commit)
            opened = self._remote.create_pull(
                base=request.base, head=request.head, title=request.title, body=request.body
            )
            return opened.html_url

    def create_check_run(self, name: str, commit: str, conclusion: str, output: Mapping[str, Any]) -> str:
        """A completed check run on a commit; its address."""
        with _talking(f"check run {name}"):
            return self._remote.create_check_run(
                name, commit, status="completed", conclusion=conclusion, output=dict(output)
            ).html_url

    def checks(self, commit: str) -> tuple[CheckFacts, ...]:
        """All check runs of a commit, the hidden older ones of a name too."""
        with _talking(f"checks of {commit}"):
            return tuple(self._facts(check) for check in self._remote.get_commit(commit).get_check_runs(filter="all"))

    def _facts(self, check: CheckRun) -> CheckFacts:
        found = _RUN_IN_URL.search(check.details_url or "")
        run_id = found[1] if found else None
        app: GithubApp | None = check.app  # null where the app was removed
        return CheckFacts(
            id=check.id,
            name=check.name,
            app_id=app.id if app is not None else None,
            head_sha=check.head_sha,
            run_id=run_id,
            workflow=self._workflow(run_id) if run_id else None,
            conclusion=check.conclusion,
        )

    def _workflow(self, run_id: str) -> str | None:
        try:
            with _talking(f"run {run_id}"):
                path = self._remote.get_workflow_run(int(run_id)).path
        except PushRefused as error:
            if error.kind == Refusal.MISSING:
                return None
            raise
        return path.partition("@")[0] if path else None


@contextlib.contextmanager
def _talking(what: str) -> Iterator[None]:
    """Turn what PyGithub raises into our errors."""
    import requests
    from github import BadAttributeException, GithubException

    try:
        yield
    except GithubException as error:
        kind = classify(f"{error.message or ''} {error.data}", error.status)
        message = f"{what}: HTTP {error.status}: {plain(str(error.message or error.data), 600)}"
        if kind in _INFRA:
            raise RepositoryUnusable(message) from error
        raise PushRefused(kind, message) from error
    except (
        requests.RequestException,
        BadAttributeException,
        ValueError,
        TypeError,
        AttributeError,
        AssertionError,
    ) as error:
        raise RepositoryUnusable(f"{what}: GitHub's answer cannot be used: {plain(str(error), 300)}") from error
