"""The store: whole, verified files by their sha256, lent to those who need them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import FetchFailed, StoreDenied
from agent.store.download import size_of
from agent.store.fill import Filler
from agent.store.local import Local, Said, leading_local
from agent.store.locks import exclusive, shared
from agent.store.patience import Patience
from agent.store.progress import Progress, Silence
from agent.store.root import Root
from agent.store.sources.source import Source
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

    @cached_property
    def stamps(self) -> Stamps:
        """What is known of files that were hashed."""
        return Stamps(self.root.stamps if self.root.writable else None)

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
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skippy-view-")))
            yield build_view(folder, places)

    def sha256_of(self, path: Path) -> str:
        """The digest of any file of this machine, by its stamp where that holds. Raises FileUnreadable."""
        return self._local.sha256_of(path)

    @cached_property
    def _local(self) -> Local:
        return Local(stamps=self.stamps, patience=self.patience, progress=self.progress)

    def _places(self, files: Sequence[Wanted], leases: contextlib.ExitStack) -> dict[Wanted, Path]:
        """Where each file lies: what is here is leased first, so that nothing removes it while the rest is fetched."""
        places: dict[Wanted, Path] = {}
        rest: dict[Wanted, Said] = {}
        for wanted in dict.fromkeys(files):
            said = Said(lines=[], progress=self.progress)
            place = self._lease(wanted, leases)
            for source in leading_local(self.sources):
                place = place or self._local.find(wanted, source, said)
            if place is None:
                rest[wanted] = said
            else:
                places[wanted] = place
        if rest:
            self._require_room(list(rest))
        for wanted, said in rest.items():
            places[wanted] = self._fetch(wanted, said, leases)
        return {wanted: places[wanted] for wanted in files}

    def _lease(self, wanted: Wanted, leases: contextlib.ExitStack) -> Path | None:
        """The blob, kept from removal for as long as `leases` lives; None where there is no good one."""
        blob, lock = self.root.blob(wanted.sha256), self.root.lock(wanted.sha256)
        if not blob.is_file():
            return None
        if not self.root.writable and not lock.exists():
            return blob if self._local.fault(blob, wanted) is None else None
        with contextlib.ExitStack() as trial:
            held = trial.enter_context(shared(lock, patience=self.patience.holder, on_wait=self._waiting(wanted)))
            if blob.is_file() and self._local.fault(blob, wanted, held) is None:
                held.beat()
                leases.push(trial.pop_all())
                return blob
        return None

    def _fetch(self, wanted: Wanted, said: Said, leases: contextlib.ExitStack) -> Path:
        blob, lock = self.root.blob(wanted.sha256), self.root.lock(wanted.sha256)
        rest = self.sources[len(leading_local(self.sources)) :]
        filler = Filler(root=self.root, local=self._local, sources=rest, offline=self.offline)
        for _ in range(self.patience.attempts):
            with exclusive(lock, patience=self.patience.holder, on_wait=self._waiting(wanted)) as held:
                # another agent may have fetched it while this one waited
                if not blob.is_file() or self._local.fault(blob, wanted, held):
                    self._quarantine(blob, wanted)
                    place = filler.fill(wanted, held, said)
                    if place is not None:
                        return place
            # a clean-up may come between the two locks, and then all of it is done once more
            leased = self._lease(wanted, leases)
            if leased is not None:
                return leased
        raise FetchFailed(
            f"{wanted} was removed from {self.root.path} each time that it was fetched: end what cleans it"
        )

    def _quarantine(self, blob: Path, wanted: Wanted) -> None:
        if blob.is_file():
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

    def _waiting(self, wanted: Wanted) -> Callable[[], None]:
        return lambda: self.progress.note(f"{wanted.path}: another process works on it; waiting")
