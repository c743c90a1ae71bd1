"""The store: whole, verified files by their sha256, lent to those who need them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import FetchFailed, FileUnreadable, NoSpace, Offline, StoreDenied, StoreError
from agent.header.text import shown
from agent.store.download import Download, size_of
from agent.store.locks import Held, exclusive, shared
from agent.store.patience import Patience
from agent.store.progress import Progress, Silence
from agent.store.root import Root
from agent.store.sources.source import InPlace, Source
from agent.store.space import GIB, disk_errors, require_space
from agent.store.stamps import Stamps
from agent.store.tidy import quarantine, sweep_partials
from agent.store.view import build_view

if TYPE_CHECKING:
    from agent.store.wanted import Wanted


@dataclass(frozen=True, kw_only=True)
class Store:
    """A folder of files and the sources that fill it.

    Attributes:
        root: the folder.
        sources: asked in this order.
        offline: whether only sources of this machine may be asked.
        floor: bytes of the disk that stay free.
        patience: how long to wait and how often to try.
        progress: who is told.
    """

    root: Root
    sources: tuple[Source, ...]
    offline: bool = False
    floor: int = 2 * GIB
    patience: Patience = field(default_factory=Patience)
    progress: Progress = field(default_factory=Silence)
    stamps: Stamps = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stamps", Stamps(self.root.stamps if self.root.writable else None))

    @contextlib.contextmanager
    def lend(self, files: Sequence[Wanted]) -> Iterator[dict[Wanted, Path]]:
        """Bring files here, verified, and keep them for the length of a block.

        Args:
            files: what belongs into one folder, such as the shards of a model.

        Yields:
            The path of each file, under its own name.

        Raises:
            FetchFailed: no source could give a file.
            NoSpace, StoreDenied, StoreBusy: the disk, its permissions, another process.
        """
        with contextlib.ExitStack() as stack:
            places = self._places(files, stack)
            folder = self.root.models
            if not self.root.writable:
                import tempfile

                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skippy-view-")))
            yield build_view(folder, places)

    def sha256_of(self, path: Path) -> str:
        """The digest of any file of this machine, by its stamp where that holds.

        Raises:
            FileUnreadable: it cannot be read.
        """
        return self._hashed(path)

    def _places(self, files: Sequence[Wanted], leases: contextlib.ExitStack) -> dict[Wanted, Path]:
        """Where each file lies: what is here is leased first, so that nothing removes it while the rest is fetched."""
        places: dict[Wanted, Path] = {}
        rest: dict[Wanted, list[str]] = {}
        for wanted in dict.fromkeys(files):
            said: list[str] = []
            place = self._lease(wanted, leases) or self._in_place(wanted, self._first_local(), said)
            if place is None:
                rest[wanted] = said
            else:
                places[wanted] = place
        if rest:
            self._require_room(list(rest))
        for wanted, said in rest.items():
            place = self._fetch(wanted, said, leases)
            places[wanted] = place
        return {wanted: places[wanted] for wanted in files}

    # -- what is here --------------------------------------------------------------------------------------------------

    def _lease(self, wanted: Wanted, leases: contextlib.ExitStack) -> Path | None:
        """The blob, kept from removal for as long as `leases` lives; None where there is no good one."""
        blob, lock = self.root.blob(wanted.sha256), self.root.lock(wanted.sha256)
        if not blob.is_file():
            return None
        if not self.root.writable and not lock.exists():
            return blob if self._fault(blob, wanted) is None else None
        with contextlib.ExitStack() as trial:
            held = trial.enter_context(shared(lock, patience=self.patience.holder, on_wait=self._waiting(wanted)))
            if blob.is_file() and self._fault(blob, wanted, held) is None:
                held.beat()
                leases.push(trial.pop_all())
                return blob
        return None

    def _in_place(self, wanted: Wanted, sources: Sequence[Source], said: list[str]) -> Path | None:
        """A verified file of a local source; what the sources said goes to `said`."""
        for source in sources:
            before = len(said)
            try:
                for offer in source.offers(wanted, self.patience):
                    if isinstance(offer, InPlace):
                        fault = self._fault(offer.path, wanted)
                        if fault is None:
                            return offer.path
                        self._say(said, f"{source.name}: {fault}")
            except StoreError as error:
                self._say(said, f"{source.name}: {error}")
            if len(said) == before:
                said.append(f"{source.name}: does not have it")
        return None

    def _fault(self, path: Path, wanted: Wanted, held: Held | None = None) -> str | None:
        """What is wrong with a file, None where it is the wanted one: its size first, which costs nothing."""
        try:
            size = path.stat().st_size
            if size != wanted.size:
                return f"wrong_bytes: {path} has {size} bytes, the plan says {wanted.size}; left as it is"
            found = self._hashed(path, held)
        except OSError as error:
            return f"store_permissions: {path} cannot be read ({error.strerror})"
        except FileUnreadable as error:
            return f"store_permissions: {error}"
        if found != wanted.sha256:
            return f"wrong_bytes: {path} has sha256 {found}, the plan says {wanted.sha256}; left as it is"
        return None

    def _hashed(self, path: Path, held: Held | None = None) -> str:
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

    # -- what is not ---------------------------------------------------------------------------------------------------

    def _fetch(self, wanted: Wanted, said: list[str], leases: contextlib.ExitStack) -> Path:
        for _ in range(self.patience.attempts):
            lock = self.root.lock(wanted.sha256)
            with exclusive(lock, patience=self.patience.holder, on_wait=self._waiting(wanted)) as held:
                blob = self.root.blob(wanted.sha256)
                if not blob.is_file() or self._fault(blob, wanted, held):  # else another agent has fetched it meanwhile
                    self._quarantine(wanted)
                    place = self._fill(wanted, held, said)
                    if place is not None:
                        return place
            # A clean-up may come between the two locks, and then all of it is done once more.
            leased = self._lease(wanted, leases)
            if leased is not None:
                return leased
        raise FetchFailed(
            f"{wanted} was removed from {self.root.path} each time that it was fetched: end what cleans it"
        )

    def _fill(self, wanted: Wanted, held: Held, said: list[str]) -> Path | None:
        """Make the blob from the first source that can. Returns the path of a file that may be used where it is, instead."""
        download = Download(wanted, self.root.partial(wanted.sha256), held, self.progress, self.patience)
        for source in self.sources[len(self._first_local()) :]:
            if self.offline and not source.local:
                self._say(said, f"{source.name}: {Offline('it was not asked (--offline)')}")
            elif source.local:
                place = self._in_place(wanted, [source], said)
                if place is not None:
                    return place
            elif self._download(source, wanted, download, said):
                self._commit(wanted)
                return None
        raise FetchFailed(
            f"{wanted} ({wanted.size} bytes, sha256 {wanted.sha256}) is not in {self.root.path}, and no source gave it:"
            + "".join(f"\n  {line}" for line in said or ["there is no source: name one with --source"])
        )

    def _download(self, source: Source, wanted: Wanted, download: Download, said: list[str]) -> bool:
        """Whether the partial file is whole and verified now. Every new byte earns new tries."""
        failures, best = 0, size_of(download.partial)
        while True:
            try:
                return self._try_offers(source, wanted, download, said)
            except NoSpace:
                raise
            except StoreError as error:
                grown = size_of(download.partial) > best
                best = max(best, size_of(download.partial))
                failures = 1 if grown else failures + 1
                delay = self.patience.delay(failures, error)
                if delay is None:
                    self._say(said, f"{source.name}: {error}")
                    return False
                self.progress.note(f"{source.name}: {error}; trying again in {delay:.1f} s")
                self.patience.sleep(delay)

    def _try_offers(self, source: Source, wanted: Wanted, download: Download, said: list[str]) -> bool:
        said_before = len(said)
        for offer in source.offers(wanted, self.patience):
            if isinstance(offer, InPlace):
                continue
            try:
                download.run(offer, source.name)
            except StoreError as error:
                if error.transient or isinstance(error, NoSpace):
                    raise
                self._say(said, f"{source.name}: {error}")
            else:
                return True
        if len(said) == said_before:
            said.append(f"{source.name}: does not have it")
        return False

    def _commit(self, wanted: Wanted) -> None:
        """The partial file becomes the blob: all of it is on the disk before it has its name."""
        partial, blob = self.root.partial(wanted.sha256), self.root.blob(wanted.sha256)
        with disk_errors(blob):
            blob.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.chmod(0o444 if os.name == "posix" else 0o666)
            partial.replace(blob)
            _sync_folder(blob.parent)
        self.stamps.remember(blob, wanted.sha256)

    def _quarantine(self, wanted: Wanted) -> None:
        blob = self.root.blob(wanted.sha256)
        if self.root.writable and blob.is_file():
            quarantine(self.root, self.stamps, wanted.sha256)
            self.progress.note(
                f"wrong_bytes: {blob} no longer holds what its name says: moved to quarantine, fetched anew"
            )

    def _require_room(self, files: list[Wanted]) -> None:
        if not self.root.writable:
            names = ", ".join(str(wanted) for wanted in files[:3])
            raise StoreDenied(
                f"{self.root.path} may only be read, and lacks {names}: fetch into it with a user who may write, or name "
                "another store with --store or SKIPPY_STORE"
            )
        if self.offline or all(source.local for source in self.sources):
            return
        sweep_partials(self.root)
        with disk_errors(self.root.path):
            needed = sum(max(0, wanted.size - size_of(self.root.partial(wanted.sha256))) for wanted in files)
            require_space(self.root.path, needed, self.floor)

    def _first_local(self) -> tuple[Source, ...]:
        """The sources that come before the first one that needs a network."""
        first = next((index for index, source in enumerate(self.sources) if not source.local), len(self.sources))
        return self.sources[:first]

    def _waiting(self, wanted: Wanted) -> Callable[[], None]:
        return lambda: self.progress.note(f"{wanted.path}: another process works on it; waiting")

    def _say(self, said: list[str], text: str) -> None:
        said.append(text)
        self.progress.note(shown(text, 500))


def _sync_folder(folder: Path) -> None:
    """Write the name of a new file to the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
