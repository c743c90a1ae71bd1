"""Why a repository refused something, read from what git or GitHub answered. A refusal is never tried again blindly."""

from __future__ import annotations

import re
from enum import StrEnum


class Refusal(StrEnum):
    """Kinds of refusal; each has its own next step."""

    MOVED = "moved"  # the branch is not where it was: decide anew
    PROTECTED = "protected"  # a rule of the branch wants a pull request, checks or reviews
    UNSIGNED = "unsigned"  # a rule wants verified signatures
    FORBIDDEN = "forbidden"  # the token may not write
    UNAUTHORISED = "unauthorised"  # the token is not accepted at all
    MISSING = "missing"  # no such repository, branch or object, or it is hidden from this token
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"  # the network or the server
    OTHER = "other"


# the first pattern that is found decides; rules come before what a rule's text may also contain
_WORDS: tuple[tuple[Refusal, str], ...] = (
    (Refusal.RATE_LIMITED, r"rate limit|abuse detection"),
    (Refusal.UNSIGNED, r"verified signature|must be signed|signed commits|unsigned commit|requires? signature"),
    (
        Refusal.PROTECTED,
        r"GH006|GH013|protected branch|repository rule|rule violation|must be made through a pull request|"
        r"required status check|review is required|protected ref",
    ),
    (
        Refusal.MOVED,
        r"non-fast-forward|not a fast.forward|fetch first|stale info|cannot lock ref|is at [0-9a-f]{40} but expected|"
        r"incorrect old value|reference cannot be updated",
    ),
    (
        Refusal.FORBIDDEN,
        r"resource not accessible|permission to .+ denied|write access to repository not granted|without `?workflows`?|"
        r"read.only|must have push access",
    ),
    (Refusal.UNAUTHORISED, r"bad credentials|authentication failed|could not read username|invalid username"),
    (
        Refusal.MISSING,
        r"repository not found|does not appear to be a git repository|couldn't find remote ref|not found",
    ),
    (Refusal.UNAVAILABLE, r"could not resolve host|connection|timed? ?out|early EOF|hung up|RPC failed"),
)
_STATUSES = {
    401: Refusal.UNAUTHORISED,
    403: Refusal.FORBIDDEN,
    404: Refusal.MISSING,
    409: Refusal.MOVED,
    429: Refusal.RATE_LIMITED,
}
_SERVER_ERROR = 500


def classify(text: str, status: int | None = None) -> Refusal:
    """The kind of refusal in the words of git or of GitHub; `status` is the HTTP status where there is one."""
    if status is not None and status >= _SERVER_ERROR:
        return Refusal.UNAVAILABLE
    if status in (401, 404, 429):  # their texts say less than the number
        return _STATUSES[status]
    for kind, pattern in _WORDS:
        if re.search(pattern, text, re.IGNORECASE):
            return kind
    return _STATUSES.get(status or 0, Refusal.OTHER)
