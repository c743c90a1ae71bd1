"""Sources as a user writes them: in --source, or in SKIPPY_SOURCES."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlsplit
from urllib.request import url2pathname

from agent.errors import SourceUnknown
from agent.header.text import shown
from agent.store.sources.http import is_address, scrub

if TYPE_CHECKING:
    from agent.store.sources.source import Source

DEFAULT = ("hub-cache", "hub")
FORMS = (
    "hub, hub:https://HOST, hub-cache, hub-cache:FOLDER, s3://BUCKET/PREFIX[?endpoint=URL&region=R&profile=P&anonymous=1], "
    "release:OWNER/REPO@TAG, run:OWNER/REPO/RUN_ID[/ARTIFACT], file:///FOLDER, or a FOLDER"
)
_S3_OPTIONS = {"endpoint", "region", "profile", "anonymous"}


def parse_sources(texts: Sequence[str], *, spool_folder: Path | None = None) -> tuple[Source, ...]:
    """The sources, in the order in which they are asked.

    Args:
        texts: one form of `FORMS` each.
        spool_folder: where archives lie while they are read.

    Raises:
        SourceUnknown: a form is not known, or holds a password.
    """
    return tuple(_parse(text, spool_folder) for text in texts)


def _parse(text: str, spool_folder: Path | None) -> Source:
    if re.search(r"(^[\w+.:-]*|:)//[^/]*@", text):
        raise SourceUnknown(
            "a source holds a user name or password: leave them out; credentials come from AWS_PROFILE, HF_TOKEN or GITHUB_TOKEN"
        )
    kind, colon, rest = text.partition(":")
    makers: dict[str, Callable[[str], Source]] = {
        "hub": _hub,
        "hub-cache": _hub_cache,
        "s3": lambda _: _s3(text),
        "release": _release,
        "run": lambda rest: _run(rest, spool_folder),
        "file": lambda _: _file(text),
    }
    if kind in makers and (colon or kind in ("hub", "hub-cache")):
        return makers[kind](rest)
    if not text or re.match(r"[a-z][\w+.-]+:", text):
        raise _unknown(text)
    return _folder(Path(text))


def _hub(endpoint: str) -> Source:
    from agent.store.sources.hub import HubSource

    if endpoint and not is_address(endpoint):
        raise _unknown(f"hub:{endpoint}")
    return HubSource(endpoint or None)


def _hub_cache(folder: str) -> Source:
    from agent.store.sources.hub_cache import HubCacheSource

    return HubCacheSource(_existing(Path(folder)) if folder else None)


def _s3(text: str) -> Source:
    from agent.store.sources.s3 import S3Source

    parts = _split(text)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - _S3_OPTIONS)
    if not parts.netloc or unknown:
        raise _unknown(text if not unknown else f"{text.partition('?')[0]}?{unknown[0]}=...")
    if "endpoint" in options and not is_address(options["endpoint"]):
        raise SourceUnknown(
            f"the endpoint {scrub(options['endpoint'])!r} is no address: give https://HOST or http://HOST:PORT"
        )
    return S3Source(
        parts.netloc,
        parts.path,
        endpoint=options.get("endpoint"),
        region=options.get("region"),
        profile=options.get("profile"),
        anonymous=options.get("anonymous", "0") not in ("0", "false", ""),
    )


def _release(rest: str) -> Source:
    from agent.store.sources.github import ReleaseSource

    found = re.fullmatch(r"([\w.-]+/[\w.-]+)@([^\s]+)", rest)
    if not found:
        raise _unknown(f"release:{rest}")
    return ReleaseSource(found[1], found[2])


def _run(rest: str, spool_folder: Path | None) -> Source:
    from agent.store.sources.github import RunSource

    found = re.fullmatch(r"([\w.-]+/[\w.-]+)/(\d+)(?:/(.+))?", rest)
    if not found:
        raise _unknown(f"run:{rest}")
    return RunSource(found[1], int(found[2]), found[3], spool_folder=spool_folder)


def _file(text: str) -> Source:
    parts = _split(text)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise _unknown(text)
    return _folder(Path(url2pathname(parts.path)))


def _folder(folder: Path) -> Source:
    from agent.store.sources.folder import FolderSource

    return FolderSource(_existing(folder))


def _existing(folder: Path) -> Path:
    try:
        if (folder := folder.expanduser()).is_dir():
            return folder.absolute()
        trouble = f"is no folder: check the path, or use one of {FORMS}"
    except (OSError, RuntimeError) as error:  # the second where ~ is of no user
        trouble = (
            f"cannot be looked at ({getattr(error, 'strerror', None) or error}): check the path and its permissions"
        )
    raise SourceUnknown(f"the source {shown(str(folder))} {trouble}")


def _split(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        raise _unknown(text) from None


def _unknown(text: str) -> SourceUnknown:
    return SourceUnknown(f"the source {shown(text)!r} is not known: use one of {FORMS}")
