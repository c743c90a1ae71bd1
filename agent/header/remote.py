"""A header on the Hugging Face hub, read by ranges: some megabytes of a model of hundreds of gigabytes."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from pathlib import PurePosixPath
from typing import Any

from agent.errors import RemoteUnreadable
from agent.header.text import printable, shown

BLOCK = 1 << 20
"""Bytes fetched at once: a header is read mostly forward, in small pieces."""
MOST = 256
"""Blocks of one header; the longest vocabularies end within the first 40."""
_KEPT = 8  # blocks that stay in memory
_TRIES = 3
_SILENCE = 30.0  # seconds without a byte; the hub's client itself would wait for ever
_SLOWEST = 120.0  # seconds for one block
_LONGEST_WAIT = 60.0  # seconds that a server may ask for
_REFERENCE = re.compile(r"^hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w.-]+))?/(?P<path>[^?#]+\.gguf)$")
_CONTENT_RANGE = re.compile(r"^bytes (\d+)-(\d+)/(\d+)$")
_PARTIAL = 206


class _Later(Exception):
    """Another try may help, after `wait` seconds; None where the other side did not say."""

    def __init__(self, words: str, wait: float | None = None) -> None:
        super().__init__(words)
        self.wait = wait


class HubSource:
    """A file of a hub repository. Every answer must be the range that was asked for, of a file that stays as long as it is.

    Raises:
        RemoteUnreadable: the reference, the network or the answer is not what it should be.
    """

    def __init__(self, reference: str) -> None:
        match = _REFERENCE.match(reference)
        if match is None:
            raise RemoteUnreadable(f"{printable(reference)} is not of the form hf://OWNER/REPO@REVISION/PATH.gguf")
        from huggingface_hub import get_session, get_token, hf_hub_url

        self.name = printable(reference)
        self.file_name = PurePosixPath(match["path"]).name
        self._url = hf_hub_url(match["repo"], match["path"], revision=match["revision"])
        token = get_token() or ""
        if not re.fullmatch(r"[!-~]*", token):  # HTTP libraries quote such a token in their errors
            raise RemoteUnreadable(
                "the token in HF_TOKEN holds a blank or another character that no token has: set it anew"
            )
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: Any = get_session()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self.size = -1
        self.fetched = 0
        self._block(0)

    def read_at(self, offset: int, n: int) -> bytes:
        """Return the `n` bytes at `offset`; fewer only where the file ends."""
        end = min(offset + n, self.size)
        parts = []
        while offset < end:
            number, start = divmod(offset, BLOCK)
            part = self._block(number)[start : start + end - offset]
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            if self.fetched >= MOST * BLOCK:
                raise RemoteUnreadable(
                    f"{self.name}: its header goes on behind {MOST} blocks of a MiB, more than any model known needs: "
                    "fetch the file and read it here"
                )
            self._blocks[number] = self._fetch(number)
            self.fetched += len(self._blocks[number])
            while len(self._blocks) > _KEPT:
                self._blocks.popitem(last=False)
        return self._blocks[number]

    def _fetch(self, number: int) -> bytes:
        for attempt in range(_TRIES):
            try:
                return self._ask(number * BLOCK)
            except _Later as later:
                wait = 2.0**attempt / 2 if later.wait is None else later.wait
                if attempt == _TRIES - 1 or wait > _LONGEST_WAIT:
                    raise RemoteUnreadable(f"{self.name} {later}") from None
                time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _ask(self, first: int) -> bytes:
        headers = {**self._headers, "Range": f"bytes={first}-{first + BLOCK - 1}", "Accept-Encoding": "identity"}
        try:
            # the body is read only where it is the range: a server that ignores ranges would send all of the model
            options = {"headers": headers, "follow_redirects": True, "timeout": _SILENCE}
            with self._session.stream("GET", self._url, **options) as answer:
                return self._body(answer, first, self._expected(answer, first))
        except (_Later, RemoteUnreadable):
            raise
        except Exception as error:
            raise _Later(f"cannot be reached: {type(error).__name__}: {shown(str(error))}") from error

    def _expected(self, answer: Any, first: int) -> int:
        """Check that `answer` is a part of the file; return its length in bytes."""
        if answer.status_code != _PARTIAL:
            why = answer.headers.get("X-Error-Message") or answer.headers.get("X-Error-Code") or "no reason given"
            words = f"answered {answer.status_code} to a request for a part of the file ({shown(why)})"
            if answer.status_code == 429 or answer.status_code >= 500:
                asked = answer.headers.get("Retry-After", "")
                raise _Later(f"{words}: try again later", float(asked) if re.fullmatch(r"\d{1,9}", asked) else None)
            raise RemoteUnreadable(
                f"{self.name}: the server {words}. Check the repository, the revision and, for gated models, the token."
            )
        part = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
        if part is None:
            raise RemoteUnreadable(f"{self.name}: the server does not say which part of the file it sent")
        start, last, size = map(int, part.groups())
        if self.size not in (-1, size):
            raise RemoteUnreadable(
                f"{self.name}: it had {self.size} bytes and has {size} now: it was replaced meanwhile; name a full revision"
            )
        self.size = size
        expected = min(BLOCK, size - first)
        if (start, last) != (first, first + expected - 1):
            raise RemoteUnreadable(
                f"{self.name}: the server sent bytes {start} to {last} where {expected} from {first} on were asked for"
            )
        return expected

    def _body(self, answer: Any, first: int, expected: int) -> bytes:
        data, since = bytearray(), time.monotonic()
        for chunk in answer.iter_raw():
            data += chunk
            if time.monotonic() - since > _SLOWEST:
                raise _Later(f"sent {len(data)} bytes in {_SLOWEST:.0f} s: too slow")
            if len(data) > expected:
                raise RemoteUnreadable(f"{self.name}: more than the {expected} bytes came that were announced")
        if len(data) < expected:
            raise _Later(f"sent {len(data)} bytes instead of {expected} from byte {first} on: try again")
        return bytes(data)
