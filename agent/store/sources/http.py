"""Bytes over HTTP: one ranged GET, its answers named by cause, and no secret in any message."""

from __future__ import annotations

import contextlib
import datetime as dt
import email.utils
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.errors import (
    AccessDenied,
    ArtifactGone,
    NetworkFailed,
    RangeRefused,
    RateLimited,
    ServerFailed,
    SourceRefused,
    StoreError,
)
from agent.header.text import shown
from agent.store.sources.source import Stream

if TYPE_CHECKING:
    import requests
    import urllib3

    from agent.store.patience import Patience

_CHUNK = 2**20
_SKEW_SECONDS = 60
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_SECRETS = re.compile(
    r"(https?://)[^\s/'\"]*@|\?[^\s'\"<>)]+|\b(?:hf_|gh[a-z]_|github_pat_)\w+|(?i:bearer|token) [\w.-]{8,}"
)


def scrub(text: object) -> str:
    """Text of a library, without what it may quote of addresses and headers: queries, user names, tokens."""
    return shown(_SECRETS.sub(lambda hit: (hit[1] or "") + "...", str(text)), 300)


def is_address(url: str) -> bool:
    """Whether `url` is http or https, a host, a port that exists or none, a path or none, and no user name."""
    if not re.fullmatch(r"https?://[^/?#@\s]+(?:/[^?#\s]*)?", url):
        return False
    try:
        return bool(urlsplit(url).hostname) and urlsplit(url).port != 0
    except ValueError:
        return False


def checked_token(token: str | None, variable: str) -> str | None:
    """A token as it can be sent.

    Raises:
        AccessDenied: it holds what no header can carry. Libraries would quote such a token in their errors.
    """
    token = (token or "").strip()
    if not re.fullmatch(r"[!-~]*", token):
        raise AccessDenied(
            f"the token in {variable} holds a blank, a line break or another character that no token has: set it anew"
        )
    return token or None


def shown_address(url: str) -> str:
    """Scheme, host and path of `url`: a signature stands in the query, a password before the host."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return shown(f"{parts.scheme}://{parts.hostname}{port}{parts.path}", 300)


def new_session() -> requests.Session:
    """A session that sends the headers it is given: without this, an entry in .netrc would take the place of a token."""
    import requests

    session = requests.Session()
    session.auth = _as_it_is
    return session


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


@contextlib.contextmanager
def open_range(
    session: requests.Session,
    url: str,
    start: int,
    end: int | None,
    patience: Patience,
    headers: Mapping[str, str],
) -> Iterator[Stream]:
    """GET bytes `start` to `end` (exclusive; None: to the last one) of `url` for the length of a block.

    Raises:
        StoreError: by the status of the answer or the failure of the connection; also while the chunks are read.
    """
    import requests

    wanted = dict(headers) | {"Accept-Encoding": "identity"}
    if start or end is not None:
        wanted["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
    try:
        answer = session.get(url, headers=wanted, stream=True, timeout=(patience.connect, patience.read))
    except requests.RequestException as error:
        raise NetworkFailed(f"{shown_address(url)}: {scrub(error)}") from None
    with answer:
        raise_for_answer(answer.status_code, answer.headers, shown_address(answer.url))
        first, total = _place(answer, start)
        yield Stream(start=first, total=total, chunks=_chunks(answer.raw, url))


def raise_for_answer(status: int, headers: Mapping[str, str], address: str) -> None:
    """Do nothing for 200 and 206.

    Raises:
        StoreError: for every other status, by its cause.
    """
    if status in (200, 206):
        return
    wait = asked_wait(headers)
    answer = f"{address} answered {status}"
    skew = clock_skew(headers.get("Date"))
    if skew is not None and abs(skew) > _SKEW_SECONDS:
        answer += f" (the clock of this machine is {skew:+.0f} s off, which makes signed addresses fail)"
    error: StoreError
    if status in (401, 403):
        error = AccessDenied(
            f"{answer}: the credentials are missing, wrong, or not enough; or an agreement is to be accepted first"
        )
    elif status in (404, 410):
        error = ArtifactGone(f"{answer}: nothing is there (any more)")
    elif status == 416:
        error = RangeRefused(f"{answer} to a range: what was fetched so far does not fit it")
    elif status == 429:
        advice = f"it asks to wait {wait:.0f} s" if wait is not None else "it does not say how long to wait"
        error = RateLimited(f"{answer}: too many requests; {advice}", retry_after=wait)
    elif status >= 500 or status == 408:
        error = ServerFailed(f"{answer}: a fault of the server", retry_after=wait)
    else:
        error = SourceRefused(f"{answer}: check the address of the source")
    raise error


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks to wait; None where it does not say.

    Retry-After holds seconds or a date, which counts from the answer's own Date, since clocks differ. Without it, the hub
    says in RateLimit when the next window begins: `"api";r=0;t=55`.
    """
    known = {name.lower(): value for name, value in headers.items()}
    value = known.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    until = _parse_date(value)
    if until is not None:
        since = _parse_date(known.get("date")) or dt.datetime.now(dt.UTC)
        return max(0.0, (until - since).total_seconds())
    window = re.search(r";\s*r=0\s*;\s*t=(\d{1,9})\b", known.get("ratelimit", ""))
    return float(window[1]) if window else None


def clock_skew(date: str | None) -> float | None:
    """Seconds by which this machine's clock is ahead of a Date header; None where there is none."""
    there = _parse_date(date)
    return None if there is None else (dt.datetime.now(dt.UTC) - there).total_seconds()


def _parse_date(text: str | None) -> dt.datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else None


def _place(answer: requests.Response, start: int) -> tuple[int, int | None]:
    if answer.status_code == 206:
        where = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if where is None or int(where[1]) != start:
            raise RangeRefused(f"{shown_address(answer.url)} answered with another range than byte {start} onwards")
        return start, None if where[2] == "*" else int(where[2])
    length = answer.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _chunks(body: urllib3.BaseHTTPResponse, url: str) -> Iterator[bytes]:
    """Yield what arrived, without waiting for a block to be full: a watchdog must see a slow transfer."""
    import urllib3

    try:
        while chunk := body.read1(_CHUNK):
            yield chunk
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise NetworkFailed(f"{shown_address(url)} broke off: {scrub(error)}") from None
