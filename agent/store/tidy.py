"""Looking at a store, verifying it, and cleaning it: never what a running leg leases, never a folder that is no store."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import FileUnreadable
from agent.store.locks import shared, try_exclusive
from agent.store.root import Root, require_tag
from agent.store.stamps import Stamps
from agent.store.view import prune_views

if TYPE_CHECKING:
    from agent.store.progress import Progress

_OLD_PARTIAL_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One blob.

    Attributes:
        sha256, size: digest and bytes.
        names: what models call it.
        used: seconds since the epoch of its last use, by this machine's clock.
        leased: whether a running process uses it now.
    """

    sha256: str
    size: int
    names: tuple[str, ...]
    used: float
    leased: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaning:
    """What a clean-up did, or would do.

    Attributes:
        removed: blobs that are gone, or would be.
        spared: blobs that were to go and are in use.
        freed: bytes.
        free: bytes of the disk that are free after it.
        enough: whether as much is free as was asked for.
    """

    removed: tuple[Entry, ...]
    spared: tuple[Entry, ...]
    freed: int
    free: int
    enough: bool


def entries(root: Root) -> tuple[Entry, ...]:
    """All blobs, the one that was not used for longest first."""
    names = _names(root)
    found = []
    for blob in root.blobs():
        with contextlib.suppress(FileNotFoundError):  # another process removed it meanwhile
            found.append(
                Entry(
                    sha256=blob.name,
                    size=blob.stat().st_size,
                    names=tuple(sorted(names.get(blob.name, ()))),
                    used=_last_use(root, blob),
                    leased=_leased(root, blob.name),
                )
            )
    return tuple(sorted(found, key=lambda entry: (entry.used, entry.sha256)))


def verify(root: Root, stamps: Stamps, progress: Progress, *, patience: float) -> tuple[tuple[Entry, bool], ...]:
    """Hash every blob anew, whatever its stamp says. What is wrong goes to quarantine where this user may write.

    Returns:
        Each blob with whether it is good; one that another process removed meanwhile is left out.
    """
    results = []
    for entry in entries(root):
        # with this lock nobody puts another file in its place between the look at it and the quarantine
        with shared(root.lock(entry.sha256), patience=patience) if root.writable else contextlib.nullcontext():
            stamps.forget(root.blob(entry.sha256))
            good = _is_good(root, stamps, entry, progress)
            if not good and not root.blob(entry.sha256).exists():
                continue
            if not good and root.writable:
                quarantine(root, stamps, entry.sha256)
        results.append((entry, good))
    return tuple(results)


def clean(root: Root, *, free: int, pinned: Collection[str] | None = None, dry_run: bool = False) -> Cleaning:
    """Remove what nobody needs, then the blobs that were not used for longest until `free` bytes of the disk are free.

    Args:
        root: a store with its tag.
        free: bytes that are to be free.
        pinned: digests that a manifest pins; blobs of others go in any case. None spares them.
        dry_run: say only what would go.

    Raises:
        NotAStore: the folder carries no tag of ours; nothing is touched.
    """
    require_tag(root)
    removed: list[Entry] = []
    spared: list[Entry] = []
    freed = 0 if dry_run else _remove_leftovers(root)
    start = shutil.disk_usage(root.path).free
    for entry in entries(root):
        unpinned = pinned is not None and entry.sha256 not in pinned
        if not unpinned and start + sum(gone.size for gone in removed) >= free:
            continue
        in_use = entry.leased if dry_run else not _remove(root, entry.sha256)
        if in_use:
            spared.append(entry)
        else:
            removed.append(entry)
    if not dry_run:
        prune_views(root.models)
    freed += sum(entry.size for entry in removed)
    left = start + freed if dry_run else shutil.disk_usage(root.path).free
    return Cleaning(removed=tuple(removed), spared=tuple(spared), freed=freed, free=left, enough=left >= free)


def quarantine(root: Root, stamps: Stamps, sha256: str) -> None:
    """Put a blob aside that no longer holds what its name says; those who have it open keep what they see."""
    target = root.quarantined(sha256)
    with contextlib.suppress(FileNotFoundError):
        target.parent.mkdir(parents=True, exist_ok=True)
        stamps.forget(root.blob(sha256))
        root.blob(sha256).replace(target)


def sweep_partials(root: Root, older_than: float = _OLD_PARTIAL_SECONDS) -> int:
    """Remove unfinished files that nobody works on and nobody went on with for days. Returns how many."""
    removed = 0
    for partial in sorted(root.partials.glob("*")):
        with contextlib.suppress(OSError):
            if time.time() - partial.stat().st_mtime < older_than:
                continue
            with try_exclusive(root.lock(partial.name)) as held:
                if held is not None:
                    partial.unlink()
                    removed += 1
    return removed


def _remove(root: Root, sha256: str) -> bool:
    """Remove a blob unless it is in use: the lease and this lock exclude one another, so it cannot be taken meanwhile."""
    with try_exclusive(root.lock(sha256)) as held:
        if held is None:
            return False
        Stamps(root.stamps).forget(root.blob(sha256))
        root.blob(sha256).unlink(missing_ok=True)
        return True


def _remove_leftovers(root: Root) -> int:
    freed = 0
    for path in [*root.path.glob("quarantine/*"), *root.stamps.glob("*.new")]:
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            freed += size
    sweep_partials(root)
    return freed


def _is_good(root: Root, stamps: Stamps, entry: Entry, progress: Progress) -> bool:
    blob = root.blob(entry.sha256)
    progress.begin(entry.sha256, "hash", 0, entry.size)
    try:
        return stamps.sha256_of(blob, lambda count: progress.advance(entry.sha256, count)) == entry.sha256
    except FileUnreadable:
        return False
    finally:
        progress.end(entry.sha256)


def _leased(root: Root, sha256: str) -> bool:
    if not root.lock(sha256).exists() or not root.writable:
        return False
    with try_exclusive(root.lock(sha256)) as held:
        return held is None


def _last_use(root: Root, blob: Path) -> float:
    lock = root.lock(blob.name)
    return (lock if lock.exists() else blob).stat().st_mtime


def _names(root: Root) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for link in root.models.glob("*/**/*"):
        if link.is_symlink():
            names.setdefault(link.readlink().name, set()).add(link.name)
    return names
