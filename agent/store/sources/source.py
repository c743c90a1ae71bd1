"""The one interface of all sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.store.patience import Patience
from agent.store.wanted import Sought, Wanted


@dataclass(frozen=True, kw_only=True)
class InPlace:
    """A file on this machine that may be the wanted one. It is hashed before it is used, and never written to."""

    path: Path


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Bytes under way: `chunks` come as they arrive and begin at byte `start` of the file.

    Attributes:
        start: 0 where the other side cannot begin elsewhere, whatever was asked for.
        total: size of the whole file as the other side says; None where it does not.
    """

    start: int
    total: int | None
    chunks: Iterator[bytes]


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file elsewhere.

    Attributes:
        size: as the other side says; None where it does not.
        ranges: whether pieces of it can be fetched at the same time.
        open: given the first byte and the one after the last (None: to the end), connects for the length of a block.
    """

    size: int | None
    ranges: bool
    open: Callable[[int, int | None], AbstractContextManager[Stream]]


Offer = InPlace | Remote


class Source(Protocol):
    """Somewhere that files come from. Nothing that it says is believed: the sha256 of the plan decides."""

    @property
    def name(self) -> str:
        """For messages; never holds a secret."""
        ...

    @property
    def local(self) -> bool:
        """Whether it works without a network."""
        ...

    def offers(self, wanted: Wanted, patience: Patience, /) -> Iterable[Offer]:
        """Yield what it has for `wanted`, the most likely first; nothing where it has none.

        Raises:
            StoreError: by its cause; asked again later if that is transient.
        """
        ...


def candidate_names(wanted: Wanted | Sought) -> tuple[str, ...]:
    """Where a mirror may keep a file, relative to its root: as a store does, as the hub does, or flat. Exact names only."""
    if isinstance(wanted, Sought):
        return (wanted.name,)
    names = (
        f"sha256/{wanted.sha256[:2]}/{wanted.sha256}",
        f"{wanted.repo}/{wanted.revision}/{wanted.path}",
        f"{wanted.repo}/{wanted.path}",
        wanted.path,
        wanted.name,
    )
    return tuple(dict.fromkeys(names))
