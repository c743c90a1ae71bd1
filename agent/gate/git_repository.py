"""A repository behind the git command line: a bare one on this machine, or any address that git can reach."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.errors import AgentError, PushRefused, RepositoryUnusable
from agent.gate.refusal import Refusal, classify
from agent.gate.repository import Entry, PullRequest
from agent.gate.text import plain

BOT_NAME = "skippy-ci"
BOT_EMAIL = "skippy-ci@users.noreply.github.com"
_TIMEOUT_SECONDS = 300


class GitRepository:
    """Objects are fetched into a bare repository of its own; only `advance` and `open_pull_request` write to the remote."""

    def __init__(self, address: str) -> None:
        # git runs elsewhere, so a path of this machine must not stay relative
        self._address = str(Path(address).resolve()) if Path(address).exists() else address
        self._folder = tempfile.TemporaryDirectory(prefix="skippy-publish-")
        try:
            self._git("init", "--bare", "--quiet", ".")
        except AgentError:
            self._folder.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def tip(self, branch: str) -> str:
        """Fetch a branch; its commit."""
        self._git("fetch", "--quiet", "--no-tags", self._address, f"+refs/heads/{branch}:refs/remotes/origin/{branch}")
        return self._git("rev-parse", "--verify", f"refs/remotes/origin/{branch}^{{commit}}").decode().strip()

    def listing(self, commit: str) -> Mapping[str, Entry]:
        """Every file of a commit; submodules are entries too."""
        rows = self._git("ls-tree", "-r", "-z", commit).decode("utf-8", "surrogateescape").split("\0")
        entries = {}
        for row in filter(None, rows):
            facts, _, path = row.partition("\t")
            mode, _kind, oid = facts.split()
            entries[path] = Entry(mode, oid)
        return entries

    def read(self, commit: str, path: str) -> bytes:
        """Bytes of a file of a commit."""
        return self._git("cat-file", "blob", f"{commit}:{path}")

    def is_ancestor(self, old: str, new: str) -> bool:
        """True if `new` has `old` in its history; false also for a commit that is not there."""
        return self._run("merge-base", "--is-ancestor", old, new).returncode == 0

    def make_commit(self, parent: str, path: str, content: str, message: str) -> str:
        """A commit on `parent` that sets one file, built in an index of its own."""
        blob = self._git("hash-object", "-w", "--stdin", given=content.encode()).decode().strip()
        index = {"GIT_INDEX_FILE": str(Path(self._folder.name) / "publish.index")}
        self._git("read-tree", parent, environment=index)
        self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", environment=index)
        tree = self._git("write-tree", environment=index).decode().strip()
        return self._git("commit-tree", tree, "-p", parent, given=message.encode()).decode().strip()

    def advance(self, branch: str, commit: str) -> None:
        """Push without force: the server takes a fast-forward and nothing else."""
        self._git("push", "--quiet", self._address, f"{commit}:refs/heads/{branch}")

    def open_pull_request(self, request: PullRequest) -> str:
        """Push the branch. git knows no pull requests, so the address of the branch stands for one."""
        self.advance(request.head, request.commit)
        return f"{self._address}#{request.head}"

    def _git(self, *arguments: str, given: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
        done = self._run(*arguments, given=given, environment=environment)
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.decode("utf-8", "replace").strip()
        kind = classify(said)
        message = f"git {arguments[0]}: {plain(' '.join(said.split()), 600)}"
        if kind is Refusal.UNAVAILABLE:
            raise RepositoryUnusable(message)
        raise PushRefused(kind, message)

    def _run(
        self, *arguments: str, given: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        person = {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", BOT_NAME), ("EMAIL", BOT_EMAIL))
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
        try:
            return subprocess.run(
                ["git", *arguments],  # noqa: S607 - the git that the user has
                cwd=self._folder.name,
                input=given,
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
                env={**kept, **person, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(environment or {})},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RepositoryUnusable(f"git could not be run: {error}") from error


# settings of the caller that reach the server; everything else that starts with GIT_ could redirect the work
_KEPT = frozenset({"GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"})
