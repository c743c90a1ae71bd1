"""The store that a command works with: the folder, the sources and the network as the user chose them."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.commands.folders import cache_folder
from agent.errors import UsageError

if TYPE_CHECKING:
    from agent.store.progress import Progress
    from agent.store.store import Store

_TRUE = {"1", "on", "yes", "true"}


@dataclass(frozen=True, kw_only=True)
class StoreRequest:
    """What the user said about the store; see `skippy-agent fetch --help`.

    Attributes:
        folder: None for SKIPPY_STORE, else `store` in the cache folder.
        sources: in the order in which they are asked; empty for SKIPPY_SOURCES, else the Hugging Face cache and the hub.
        offline: use no network. HF_HUB_OFFLINE turns off the hub only.
    """

    folder: Path | None
    sources: tuple[str, ...] = ()
    offline: bool = False


def store_folder(chosen: Path | None) -> Path:
    """Where the store is."""
    named = os.environ.get("SKIPPY_STORE")
    return chosen or (Path(named) if named else cache_folder() / "store")


def open_store(request: StoreRequest, progress: Progress) -> Store:
    """Open it, or make it where there is none.

    Raises:
        SourceUnknown, UsageError: a source or a number of the environment is not one.
        NotAStore, StoreDenied, NoSpace: the folder cannot be used.
    """
    from agent.store.root import open_root
    from agent.store.sources.spec import DEFAULT, parse_sources
    from agent.store.store import Store

    root = open_root(store_folder(request.folder))
    texts = request.sources or tuple(_words("SKIPPY_SOURCES")) or DEFAULT
    return Store(
        root=root,
        sources=parse_sources(texts, spool_folder=root.partials if root.writable else None),
        offline=request.offline or os.environ.get("SKIPPY_OFFLINE", "").lower() in _TRUE,
        floor=floor_bytes(),
        progress=progress,
    )


def floor_bytes() -> int:
    """Bytes of the disk that stay free: SKIPPY_STORE_FLOOR, else 2 GiB."""
    from agent.store.space import parse_size

    text = os.environ.get("SKIPPY_STORE_FLOOR", "2GiB")
    try:
        return parse_size(text)
    except ValueError:
        raise UsageError(f"SKIPPY_STORE_FLOOR is {text!r}: give a size such as 20GiB") from None


def _words(variable: str) -> list[str]:
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise UsageError(f"{variable}: {error}: separate sources with spaces, and quote those that hold one") from None
