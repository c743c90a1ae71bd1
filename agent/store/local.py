"""Files of this machine, looked at: is this one, byte for byte, the wanted one?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import FileUnreadable, StoreError
from agent.header.text import shown
from agent.store.sources.source import InPlace, Source

if TYPE_CHECKING:
    from agent.store.locks import Held
    from agent.store.patience import Patience
    from agent.store.progress import Progress
    from agent.store.stamps import Stamps
    from agent.store.wanted import Wanted

_SHOWN = 500


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the sources said about one file: kept for the error, told to whom it may concern."""

    lines: list[str]
    progress: Progress

    def add(self, source: Source, text: object) -> None:
        """Keep a line and tell it."""
        self.lines.append(f"{source.name}: {text}")
        self.progress.note(shown(self.lines[-1], _SHOWN))

    def absent(self, source: Source) -> None:
        """Keep that a source has nothing, which is worth no note."""
        self.lines.append(f"{source.name}: does not have it")


@dataclass(frozen=True, kw_only=True)
class Local:
    """Hashes files, at most once each."""

    stamps: Stamps
    patience: Patience
    progress: Progress

    def find(self, wanted: Wanted, source: Source, said: Said) -> Path | None:
        """A verified file of a source of this machine, to be used where it is."""
        before = len(said.lines)
        try:
            for offer in source.offers(wanted, self.patience):
                if isinstance(offer, InPlace):
                    fault = self.fault(offer.path, wanted)
                    if fault is None:
                        return offer.path
                    said.add(source, fault)
        except StoreError as error:
            said.add(source, error)
        except OSError as error:
            said.add(source, f"store_permissions: {error.filename} cannot be looked at ({error.strerror})")
        if len(said.lines) == before:
            said.absent(source)
        return None

    def fault(self, path: Path, wanted: Wanted, held: Held | None = None) -> str | None:
        """What is wrong with a file, None where it is the wanted one. Its size comes first, which costs nothing."""
        try:
            size = path.stat().st_size
            if size != wanted.size:
                return f"wrong_bytes: {path} has {size} bytes, the plan says {wanted.size}; left as it is"
            found = self.sha256_of(path, held)
        except OSError as error:
            return f"store_permissions: {path} cannot be read ({error.strerror})"
        except FileUnreadable as error:
            return f"store_permissions: {error}"
        if found != wanted.sha256:
            return f"wrong_bytes: {path} has sha256 {found}, the plan says {wanted.sha256}; left as it is"
        return None

    def sha256_of(self, path: Path, held: Held | None = None) -> str:
        """The digest of a file, by its stamp where that holds. Raises FileUnreadable."""
        known = self.stamps.known(path)
        if known is not None:
            return known
        name = str(path)

        def advance(count: int) -> None:
            self.progress.advance(name, count)
            if held is not None:
                held.beat()

        with contextlib.suppress(OSError):
            self.progress.begin(name, "hash", 0, path.stat().st_size)
        try:
            return self.stamps.sha256_of(path, advance)
        finally:
            self.progress.end(name)


def leading_local(sources: Sequence[Source]) -> tuple[Source, ...]:
    """The sources that come before the first one that needs a network."""
    first = next((index for index, source in enumerate(sources) if not source.local), len(sources))
    return tuple(sources[:first])
