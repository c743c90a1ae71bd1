"""A folder on this machine, or one that is mounted on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.store.sources.source import InPlace, candidate_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.store.patience import Patience
    from agent.store.wanted import Sought, Wanted


class FolderSource:
    """Files of a folder, used in place. Looks for exact names only, so a neighbour's file is never taken."""

    local = True

    def __init__(self, folder: Path) -> None:
        self.name = f"folder {folder}"
        self._folder = folder

    def offers(self, wanted: Wanted | Sought, _patience: Patience) -> Iterator[InPlace]:
        """Yield the files that have a name of the wanted one."""
        for name in candidate_names(wanted):
            path = self._folder / name
            if path.is_file():
                yield InPlace(path=path)
