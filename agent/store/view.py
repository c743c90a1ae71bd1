"""A folder for each model in which its files have their names, because llama.cpp finds the shards of a model by name."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agent.store.space import disk_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.store.wanted import Wanted


def build_view(folder: Path, places: Mapping[Wanted, Path]) -> dict[Wanted, Path]:
    """Link every file under its own path, and nothing else, in a folder named after the set.

    Args:
        folder: where views are kept.
        places: where each file of the model lies.

    Returns:
        The path of each file in the view.

    Raises:
        NoSpace, StoreDenied: the links cannot be made.
    """
    view = folder / view_name(list(places))
    links = {wanted: view / PurePosixPath(wanted.path) for wanted in places}
    with disk_errors(view):
        for wanted, link in links.items():
            _link(places[wanted], link)
    return links


def view_name(files: list[Wanted]) -> str:
    """Digest of the names and contents of a set of files: 32 hex digits."""
    lines = sorted(f"{wanted.path} {wanted.sha256}\n" for wanted in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:32]


def prune_views(folder: Path) -> int:
    """Remove the views of which a link leads nowhere; returns how many."""
    removed = 0
    for view in sorted(folder.glob("*")):
        entries = sorted(view.rglob("*"), reverse=True)
        if all(entry.exists() for entry in entries) and any(entry.is_symlink() for entry in entries):
            continue
        removed += 1
        for entry in entries:
            with contextlib.suppress(OSError):
                entry.unlink() if entry.is_symlink() else entry.rmdir()
        with contextlib.suppress(OSError):
            view.rmdir()
    return removed


def _link(target: Path, link: Path) -> None:
    """Symbolic, since a hard link would change the target's ctime, and with it its stamp. Atomic also over another link."""
    with contextlib.suppress(OSError):
        if link.readlink() == target:
            return
    link.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(target)
        return
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)
