"""What publishing needs of the product's repository. Two implementations: the git command line and GitHub's API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """One path of a tree: mode (``100644``) and object id (40 hex)."""

    mode: str
    oid: str


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """A pull request to open: `commit` on a new branch `head`, to be merged into `base`."""

    head: str
    base: str
    commit: str
    title: str
    body: str


class Repository(Protocol):
    """A repository on a server. No method ever forces a reference.

    Every method raises PushRefused (the server said no, with the kind), or RepositoryUnusable (it could not be asked).
    """

    def tip(self, branch: str) -> str:
        """Commit of a branch, 40 hex."""

    def listing(self, commit: str) -> Mapping[str, Entry]:
        """Every file of a commit. A listing that the server cut off is an error, never a short answer."""

    def read(self, commit: str, path: str) -> bytes:
        """Bytes of a file of a commit."""

    def is_ancestor(self, old: str, new: str) -> bool:
        """True if `new` is `old` or has it in its history."""

    def make_commit(self, parent: str, path: str, content: str, message: str) -> str:
        """A commit on `parent` that sets one file; no reference points to it yet."""

    def advance(self, branch: str, commit: str) -> None:
        """Fast-forward a branch."""

    def open_pull_request(self, request: PullRequest) -> str:
        """Put the commit on its branch and ask for it to be merged; the address of the request."""
