"""The Hugging Face hub, or a mirror that speaks its protocol: exact revisions, resumable bytes."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.errors import (
    AccessDenied,
    ArtifactGone,
    LinkExpired,
    NetworkFailed,
    Offline,
    RevisionMoved,
    SourceRefused,
    SourceUnknown,
    StoreError,
    WrongBytes,
)
from agent.header.text import shown
from agent.store.sources.http import (
    checked_token,
    is_address,
    new_session,
    open_range,
    raise_for_answer,
    scrub,
    shown_address,
)
from agent.store.sources.source import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import HfFileMetadata

    from agent.store.patience import Patience
    from agent.store.sources.source import Stream
    from agent.store.wanted import Wanted


class HubSource:
    """Repositories of one endpoint.

    Args:
        endpoint: address of a mirror; None for the hub that huggingface_hub is configured for (HF_ENDPOINT).
    """

    local = False

    def __init__(self, endpoint: str | None = None) -> None:
        from huggingface_hub import constants, get_token

        self._endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        if not is_address(self._endpoint):
            raise SourceUnknown(
                f"HF_ENDPOINT is {shown(self._endpoint)!r}: give the https address of a hub, or unset it"
            )
        self.name = f"hub {shown_address(self._endpoint)}"
        self._session = new_session()
        # the token belongs to the hub that it was given for: a mirror named by address never sees it
        self._given_token = get_token() if self._endpoint == constants.ENDPOINT.rstrip("/") else None

    def offers(self, wanted: Wanted, patience: Patience) -> Iterator[Remote]:
        """Yield the file of the exact revision.

        Raises:
            StoreError: by what the hub answered; also where it announces another revision, size or digest than the plan.
        """
        from huggingface_hub import constants, hf_hub_url

        if constants.HF_HUB_OFFLINE:
            raise Offline("HF_HUB_OFFLINE is set: unset it, or fetch the file while there is a network")
        token = checked_token(self._given_token, "HF_TOKEN")
        url = hf_hub_url(wanted.repo, wanted.path, revision=wanted.revision, endpoint=self._endpoint)
        metadata = self._ask(url, wanted, token, patience)
        _require_same(metadata, wanted, self.name)
        at_home = urlsplit(metadata.location)[:2] == urlsplit(self._endpoint)[:2]
        headers = {"Authorization": f"Bearer {token}"} if token and at_home else {}
        connect = partial(open_range, self._session, metadata.location, patience=patience, headers=headers)
        yield Remote(size=metadata.size, ranges=True, open=connect if at_home else partial(_signed, connect))

    def _ask(self, url: str, wanted: Wanted, token: str | None, patience: Patience) -> HfFileMetadata:
        from huggingface_hub import get_hf_file_metadata
        from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]  # of its HTTP library

        try:
            return get_hf_file_metadata(url, token=token or False, timeout=patience.connect, endpoint=self._endpoint)
        except HfHubHTTPError as error:
            raise _named(error, wanted, with_token=token is not None) from None
        except (HTTPError, OSError, ValueError) as error:
            raise NetworkFailed(f"{shown_address(url)}: {type(error).__name__}: {scrub(error)}") from None


@contextlib.contextmanager
def _signed(connect: Callable[..., AbstractContextManager[Stream]], start: int, end: int | None) -> Iterator[Stream]:
    """Connect to an address that holds its own permission, which ends after a while: the hub is asked for a new one."""
    try:
        with connect(start, end) as stream:
            yield stream
    except AccessDenied as error:
        raise LinkExpired(str(error).removeprefix(f"{error.cause}: ")) from None


def _named(error: HfHubHTTPError, wanted: Wanted, *, with_token: bool) -> StoreError:
    """The cause of an answer of the hub, which says 401 also for what is not there."""
    answer = error.response
    status, code = answer.status_code, answer.headers.get("X-Error-Code", "")
    where = f"{wanted.repo}@{wanted.revision}"
    if code == "GatedRepo" or status in (401, 403):
        token = "the token that was sent does not open it" if with_token else "no token was sent"
        gate = (
            "it is gated"
            if code == "GatedRepo"
            else "it is private, gated, or does not exist (the hub does not say which)"
        )
        return AccessDenied(
            f"{wanted.repo} answered {status}: {gate}; {token}. Accept its terms on its page and give a token that may read it "
            "in HF_TOKEN; if the repository is public, remove a token that is no longer valid"
        )
    if code == "RevisionNotFound":
        return ArtifactGone(
            f"{where} does not exist (any more): its history may have been rewritten. No other revision is taken; "
            "keep a copy in a folder or in S3, or pin another revision with `matrixgen pin`"
        )
    if code in ("EntryNotFound", "RepoNotFound") or status == 404:
        what = {"EntryNotFound": f"{wanted.path} in {where}", "RepoNotFound": wanted.repo}.get(code, str(wanted))
        return ArtifactGone(f"the hub has no {what} (any more): correct the row, or give another source with --source")
    try:
        raise_for_answer(status, answer.headers, shown_address(str(answer.url)))
    except StoreError as named:
        return named
    return SourceRefused(f"{where}: {scrub(error)}")


def _require_same(metadata: HfFileMetadata, wanted: Wanted, name: str) -> None:
    if metadata.commit_hash and metadata.commit_hash != wanted.revision:
        raise RevisionMoved(f"{name} was asked for revision {wanted.revision} and answered for {metadata.commit_hash}")
    digest = (metadata.etag or "").lower()
    if len(digest) == 64 and digest != wanted.sha256:
        raise WrongBytes(f"{name} announces sha256 {digest}, the plan says {wanted.sha256}: nothing was fetched")
    if metadata.size is not None and metadata.size != wanted.size:
        raise WrongBytes(
            f"{name} announces {metadata.size} bytes for {wanted.path}, the plan says {wanted.size}: nothing was fetched"
        )
