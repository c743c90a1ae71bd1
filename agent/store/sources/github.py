"""GitHub: assets of a release, and artifacts of a workflow run."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from agent.errors import (
    AccessDenied,
    ArtifactExpired,
    ArtifactGone,
    NetworkFailed,
    RateLimited,
    ServerFailed,
    SourceRefused,
    SourceUnknown,
    StoreError,
    WrongRun,
)
from agent.header.text import shown
from agent.store.sources.archive import member_stream, spool
from agent.store.sources.http import asked_wait, checked_token, is_address, new_session, open_range, scrub
from agent.store.sources.source import Remote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from github.Artifact import Artifact
    from github.Repository import Repository

    from agent.store.patience import Patience
    from agent.store.sources.source import Stream
    from agent.store.wanted import Sought, Wanted


class _GitHub:
    """What both kinds share: a connection to the API, with the token of GITHUB_TOKEN or GH_TOKEN where there is one."""

    local = False

    def __init__(self, repo: str, api: str | None = None) -> None:
        self._repo_name = repo
        self._api = api or os.environ.get("GITHUB_API_URL") or "https://api.github.com"
        if not is_address(self._api):
            raise SourceUnknown(f"GITHUB_API_URL is {shown(self._api)!r}: give the https address of an API of GitHub")
        self._session = new_session()

    @property
    def _token(self) -> str | None:
        for name in ("GITHUB_TOKEN", "GH_TOKEN"):
            if os.environ.get(name):
                return checked_token(os.environ[name], name)
        return None

    def _repo(self, patience: Patience) -> Repository:
        from github import Auth, Github

        token = self._token
        github = Github(
            base_url=self._api,
            auth=Auth.Token(token) if token else None,
            timeout=int(patience.read) or 1,
            retry=None,
            lazy=True,
        )
        return github.get_repo(self._repo_name)

    def _headers(self, accept: str) -> dict[str, str]:
        # requests drops Authorization when the answer leads to another host, where a signed address takes its place
        token = self._token
        return {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})


class ReleaseSource(_GitHub):
    """Assets of one release; an asset's name is the last part of the wanted path."""

    def __init__(self, repo: str, tag: str, api: str | None = None) -> None:
        super().__init__(repo, api)
        self.name = f"release {tag} of {repo}"
        self._tag = tag

    def offers(self, wanted: Wanted | Sought, patience: Patience) -> Iterator[Remote]:
        """Yield the asset of that name and size.

        Raises:
            StoreError: by what GitHub answered.
        """
        with _api_errors(self.name):
            assets = [
                (asset.url, asset.size)
                for asset in self._repo(patience).get_release(self._tag).get_assets()
                if asset.name == wanted.name and asset.state == "uploaded"
            ]
        headers = self._headers("application/octet-stream")
        for url, size in assets:
            if wanted.fits(size):
                connect = partial(open_range, self._session, url, patience=patience, headers=headers)
                yield Remote(size=size, ranges=True, open=connect)


class RunSource(_GitHub):
    """Artifacts of one workflow run: ZIP archives, of which exactly the wanted member is read and nothing is unpacked.

    Args:
        repo, run: OWNER/NAME and the number of the run.
        artifact: name of the artifact; None looks into all of the run, the newest first.
        spool_folder: where an archive lies while it is read.
    """

    def __init__(
        self, repo: str, run: int, artifact: str | None, *, spool_folder: Path | None = None, api: str | None = None
    ) -> None:
        super().__init__(repo, api)
        self.name = f"artifacts of run {run} of {repo}"
        self._run, self._artifact, self._spool_folder = run, artifact, spool_folder

    def offers(self, wanted: Wanted | Sought, patience: Patience) -> Iterator[Remote]:
        """Yield the member of each artifact that holds one of that name and size.

        Raises:
            StoreError: by what GitHub answered.
            ArtifactExpired: the retention of the artifact ended.
            WrongRun: the artifact belongs to another run.
        """
        with _api_errors(self.name):
            found = [
                artifact
                for artifact in self._repo(patience).get_workflow_run(self._run).get_artifacts()
                if self._artifact in (None, artifact.name)
            ]
            found.sort(key=lambda artifact: artifact.id, reverse=True)
            alive = [artifact for artifact in found if self._usable(artifact)]
        if found and not alive:
            names = ", ".join(artifact.name for artifact in found)
            raise ArtifactExpired(f"{self.name}: {names}: the retention ended; run the workflow again")
        if self._artifact and not found:
            raise ArtifactGone(f"{self.name} has no artifact {self._artifact}: check the name and the run")
        for artifact in alive:
            yield from self._members(artifact, wanted, patience)

    def _usable(self, artifact: Artifact) -> bool:
        run = getattr(artifact.workflow_run, "id", self._run)
        if run != self._run:
            raise WrongRun(f"artifact {artifact.id} belongs to run {run}, not to run {self._run}")
        return not artifact.expired

    def _members(self, artifact: Artifact, wanted: Wanted | Sought, patience: Patience) -> Iterator[Remote]:
        with contextlib.ExitStack() as stack:
            where = f"artifact {artifact.name} of run {self._run}"
            url, digest = artifact.archive_download_url, getattr(artifact, "digest", None)
            archive: IO[bytes] = stack.enter_context(
                spool(
                    lambda start, end: open_range(
                        self._session, url, start, end, patience, self._headers("application/vnd.github+json")
                    ),
                    where,
                    digest,
                    self._spool_folder,
                    patience,
                )
            )

            def open_member(start: int, _end: int | None) -> contextlib.AbstractContextManager[Stream]:
                return member_stream(archive, wanted, where, start)

            with member_stream(archive, wanted, where, 0) as probe:
                size = probe.total
            if size is not None and wanted.fits(size):
                yield Remote(size=size, ranges=False, open=open_member)


@contextlib.contextmanager
def _api_errors(name: str) -> Iterator[None]:
    """Name what PyGithub raises."""
    import requests
    from github import GithubException

    try:
        yield
    except GithubException as error:
        raise _named(error, name) from None
    except requests.RequestException as error:
        raise NetworkFailed(f"{name}: {scrub(error)}") from None


def _named(error: Any, name: str) -> StoreError:
    status, headers = error.status, {key.lower(): value for key, value in (error.headers or {}).items()}
    words = error.data.get("message", "") if isinstance(error.data, dict) else ""
    answer = f"{name}: GitHub answered {status}" + (f" ({scrub(words)})" if words else "")
    wait = asked_wait(headers)
    if status == 429 or wait is not None or headers.get("x-ratelimit-remaining") == "0":
        return RateLimited(f"{answer}: give a token in GITHUB_TOKEN, or wait", retry_after=wait)
    if status in (401, 403):
        return AccessDenied(
            f"{answer}: give a token in GITHUB_TOKEN that may read contents and actions of the repository"
        )
    if status in (404, 410):
        return ArtifactGone(f"{answer}: check the name; for a private repository a token in GITHUB_TOKEN is needed")
    if status >= 500:
        return ServerFailed(answer)
    return SourceRefused(answer)
