"""An existing Hugging Face cache, read in place: nothing is copied, nothing is written, nothing is believed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ArtifactGone
from agent.store.sources.source import InPlace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.store.patience import Patience
    from agent.store.wanted import Wanted


class HubCacheSource:
    """Snapshots and blobs of one cache folder.

    Args:
        folder: the folder that holds `models--OWNER--NAME`; None for the one that huggingface_hub uses (HF_HUB_CACHE, HF_HOME).
    """

    local = True

    def __init__(self, folder: Path | None = None) -> None:
        if folder is None:
            from huggingface_hub import constants

            folder = Path(constants.HF_HUB_CACHE)
        self.name = f"Hugging Face cache {folder}"
        self._folder = folder

    def offers(self, wanted: Wanted, _patience: Patience) -> Iterator[InPlace]:
        """Yield the file of the exact revision, then the blob of the digest, which any revision may have brought.

        Raises:
            ArtifactGone: the only candidate is a link that leads nowhere or out of the cache.
        """
        repo = self._folder / f"models--{wanted.repo.replace('/', '--')}"
        refused = []
        for path in (repo / "snapshots" / wanted.revision / wanted.path, repo / "blobs" / wanted.sha256):
            if not path.is_symlink() and not path.is_file():
                continue
            target = path.resolve()
            if not target.is_file():
                refused.append(f"{path} is a link that leads nowhere")
            elif not target.is_relative_to(self._folder.resolve()):
                refused.append(f"{path} is a link to {target}, outside of the cache")
            else:
                yield InPlace(path=target)
        if refused:
            raise ArtifactGone("; ".join(refused))
