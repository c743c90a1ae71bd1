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


# the first kind one of whose words is found decides; rules come before what the text of a rule may also contain
_WORDS: dict[Refusal, tuple[str, ...]] = {
    Refusal.RATE_LIMITED: (r"rate limit", r"abuse detection"),
    Refusal.UNSIGNED: (r"verified signature", r"must be signed", r"signed commits", r"unsigned commit"),
    Refusal.PROTECTED: (
        r"GH006",
        r"GH013",
        r"protected (branch|ref)",
        r"repository rule",
        r"rule violation",
        r"through a pull request",
        r"required status check",
        r"review is required",
    ),
    Refusal.MOVED: (
        r"non-fast-forward",
        r"not a fast.forward",
        r"fetch first",
        r"stale info",
        r"cannot lock ref",
        r"is at [0-9a-f]{40} but expected",
        r"incorrect old value",
    ),
    Refusal.FORBIDDEN: (
        r"resource not accessible",
        r"permission to .+ denied",
        r"write access to repository not granted",
        r"without .?workflows?.? (permission|scope)",
        r"must have push access",
    ),
    Refusal.UNAUTHORISED: (r"bad credentials", r"authentication failed", r"could not read username"),
    Refusal.MISSING: (r"not found", r"does not appear to be a git repository", r"couldn't find remote ref"),
    Refusal.UNAVAILABLE: (r"could not resolve host", r"connection", r"timed? ?out", r"early EOF", r"hung up"),
}
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
    for kind, words in _WORDS.items():
        if any(re.search(word, text, re.IGNORECASE) for word in words):
            return kind
    return _STATUSES.get(status or 0, Refusal.OTHER)
