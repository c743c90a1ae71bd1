"""Asks one source after the other until a file is here, whole and verified."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import FetchFailed, NoSpace, Offline, StoreError
from agent.store.download import Download, size_of
from agent.store.sources.source import InPlace, Source
from agent.store.space import disk_errors

if TYPE_CHECKING:
    from agent.store.local import Local, Said
    from agent.store.locks import Held
    from agent.store.root import Root
    from agent.store.wanted import Wanted

_EARNS_TRIES = 64 * 1024  # new bytes; so that one byte a try does not go on for ever


@dataclass(frozen=True, kw_only=True)
class Filler:
    """Makes blobs. Whoever calls it holds the exclusive lock of the digest."""

    root: Root
    local: Local
    sources: Sequence[Source]
    offline: bool

    def fill(self, wanted: Wanted, held: Held, said: Said) -> Path | None:
        """Make the blob from the first source that can.

        Returns:
            The path of a file that is to be used where it is instead; None where the blob was made.

        Raises:
            FetchFailed: no source could.
            NoSpace, StoreDenied: the disk, its permissions.
        """
        download = Download(wanted, self.root.partial(wanted.sha256), held, self.local.progress, self.local.patience)
        for source in self.sources:
            if source.local:
                place = self.local.find(wanted, source, said)
                if place is not None:
                    return place
            elif self.offline:
                said.add(source, Offline("it was not asked, because no network is to be used (--offline)"))
            elif self._download(source, wanted, download, said):
                self._commit(wanted)
                return None
        lines = said.lines or ["there is no source: name one with --source"]
        raise FetchFailed(
            f"{wanted} ({wanted.size} bytes, sha256 {wanted.sha256}) is not in {self.root.path}, and no source gave it:"
            + "".join(f"\n  {line}" for line in lines)
        )

    def _download(self, source: Source, wanted: Wanted, download: Download, said: Said) -> bool:
        """Whether the partial file is whole and verified now. New bytes earn new tries."""
        failures, best = 0, size_of(download.partial)
        while True:
            try:
                return self._try_offers(source, wanted, download, said)
            except NoSpace:
                raise
            except StoreError as error:
                size = size_of(download.partial)
                failures = 1 if size - best >= _EARNS_TRIES else failures + 1
                best = max(best, size)
                delay = self.local.patience.delay(failures, error)
                if delay is None:
                    said.add(source, error)
                    return False
                self.local.progress.note(f"{source.name}: {error}; trying again in {delay:.1f} s")
                self.local.patience.sleep(delay)

    def _try_offers(self, source: Source, wanted: Wanted, download: Download, said: Said) -> bool:
        before = len(said.lines)
        for offer in source.offers(wanted, self.local.patience):
            if isinstance(offer, InPlace):
                continue
            try:
                download.run(offer, source.name)
            except StoreError as error:
                if error.transient or isinstance(error, NoSpace):
                    raise
                said.add(source, error)
            else:
                return True
        if len(said.lines) == before:
            said.absent(source)
        return False

    def _commit(self, wanted: Wanted) -> None:
        """The partial file becomes the blob: all of it is on the disk before it has its name."""
        partial, blob = self.root.partial(wanted.sha256), self.root.blob(wanted.sha256)
        with disk_errors(blob):
            blob.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.chmod(0o444)
            partial.replace(blob)
            _sync_folder(blob.parent)
        self.local.stamps.remember(blob, wanted.sha256)


def _sync_folder(folder: Path) -> None:
    """Write the name of a new file to the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
