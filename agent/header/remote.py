"""A header on the Hugging Face hub, read by ranges: some megabytes of a model of hundreds of gigabytes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from agent.errors import RemoteUnreadable
from agent.header.text import printable

BLOCK = 1 << 20  # bytes fetched at once: a header is read mostly forward, in small pieces
_REFERENCE = re.compile(r"^hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?/(?P<path>[^?#]+\.gguf)$")
_CONTENT_RANGE = re.compile(r"^bytes \d+-\d+/(\d+)$")
_PARTIAL = 206


class HubSource:
    """A file of a hub repository. Every answer must be the range that was asked for.

    Raises:
        RemoteUnreadable: the reference, the network or the answer is not what it should be.
    """

    def __init__(self, reference: str) -> None:
        match = _REFERENCE.match(reference)
        if match is None:
            raise RemoteUnreadable(f"{printable(reference)} is not of the form hf://OWNER/REPO@REVISION/PATH.gguf")
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils._headers import build_hf_headers
        from huggingface_hub.utils._http import get_session

        self.name = printable(reference)
        self.file_name = PurePosixPath(match["path"]).name
        self._url = hf_hub_url(match["repo"], match["path"], revision=match["revision"])
        self._headers = build_hf_headers()
        self._session: Any = get_session()
        self._blocks: dict[int, bytes] = {}
        self.size = 0
        self.fetched = 0
        self._blocks[0] = self._fetch(0)

    def read_at(self, offset: int, n: int) -> bytes:
        """Return the `n` bytes at `offset`; fewer only where the file ends."""
        end = min(offset + n, self.size)
        parts = []
        while offset < end:
            number, start = divmod(offset, BLOCK)
            if number not in self._blocks:
                self._blocks[number] = self._fetch(number)
            part = self._blocks[number][start : start + end - offset]
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def _fetch(self, number: int) -> bytes:
        first = number * BLOCK
        headers = {**self._headers, "Range": f"bytes={first}-{first + BLOCK - 1}", "Accept-Encoding": "identity"}
        try:
            answer = self._session.get(self._url, headers=headers, follow_redirects=True)
        except Exception as error:
            raise RemoteUnreadable(f"{self.name} cannot be reached: {type(error).__name__}: {error}") from error
        if answer.status_code != _PARTIAL:
            why = answer.headers.get("X-Error-Message") or answer.headers.get("X-Error-Code") or "no reason given"
            raise RemoteUnreadable(
                f"{self.name}: the server answered {answer.status_code} to a request for a part of the file ({why}). "
                "Check the repository, the revision and, for gated models, the token."
            )
        total = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
        if total is None:
            raise RemoteUnreadable(f"{self.name}: the server does not say which part of the file it sent")
        self.size = int(total[1])
        expected = min(BLOCK, self.size - first)
        if len(answer.content) != expected:
            raise RemoteUnreadable(f"{self.name}: {len(answer.content)} bytes came instead of {expected}; try again")
        self.fetched += expected
        return bytes(answer.content)
