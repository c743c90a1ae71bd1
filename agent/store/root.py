"""The folder of a store: what stands where in it, and the tag without which nothing is ever cleaned."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agent.errors import NotAStore, StoreDenied
from agent.store.space import disk_errors

TAG = "CACHEDIR.TAG"
_SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55"
_OURS = "# This folder is a store of skippy-agent."
_TAG_TEXT = f"""{_SIGNATURE}
{_OURS}
# Everything in it can be fetched again. Clean it with `skippy-agent cache gc`, which spares what is in use.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Root:
    """Paths of a store. `writable` is False where this user may only read."""

    path: Path
    writable: bool

    def blob(self, sha256: str) -> Path:
        """A whole, verified file."""
        return self.path / "sha256" / sha256[:2] / sha256

    def partial(self, sha256: str) -> Path:
        """The beginning of a file; written only under the exclusive lock of its digest."""
        return self.partials / sha256

    def lock(self, sha256: str) -> Path:
        """The lock of a digest; its mtime is the last use. Never unlinked: two inodes would be two locks."""
        return self.path / "locks" / sha256

    def quarantined(self, sha256: str) -> Path:
        """A blob that no longer held what its name says."""
        return self.path / "quarantine" / sha256

    @property
    def partials(self) -> Path:
        """Folder of the unfinished files."""
        return self.path / "partial"

    @property
    def stamps(self) -> Path:
        """Folder of what is known about files that were hashed."""
        return self.path / "stamps"

    @property
    def builds(self) -> Path:
        """Folder of the tickets: which archive is the build of which key."""
        return self.path / "builds"

    @property
    def models(self) -> Path:
        """Folder of the views."""
        return self.path / "models"

    def blobs(self) -> list[Path]:
        """All blobs, by digest."""
        return sorted(path for path in self.path.glob("sha256/*/*") if path.is_file())


def open_root(path: Path) -> Root:
    """Make `path` a store where it is new or empty, and take it as it is where it is one.

    Raises:
        NotAStore: it holds other things.
        StoreDenied: it cannot be made.
        NoSpace: the disk is full.
    """
    with disk_errors(path):
        path = _absolute(path)
        if (path / TAG).is_file():
            return Root(path=path, writable=os.access(path, os.W_OK))
        if path.is_dir() and not os.access(path, os.W_OK):
            return Root(path=path, writable=False)
        if path.exists() and not path.is_dir():
            raise StoreDenied(f"{path} is a file, not a folder: name another place with --store or SKIPPY_STORE")
        path.mkdir(parents=True, exist_ok=True)
        if any(entry.name != TAG + ".new" for entry in path.iterdir()):
            if (path / TAG).is_file():  # another agent made it meanwhile
                return Root(path=path, writable=True)
            raise NotAStore(
                f"{path} holds files and is not a store of skippy-agent: name an empty folder, or one that does not exist, "
                "with --store or SKIPPY_STORE"
            )
        temporary = path / (TAG + ".new")
        temporary.write_text(_TAG_TEXT, encoding="utf-8")
        try:
            temporary.replace(path / TAG)
        except FileNotFoundError:  # another agent moved it into place
            if not (path / TAG).is_file():
                raise
    return Root(path=path, writable=True)


def existing_root(path: Path) -> Root:
    """Take `path` as it is where it is a store.

    Raises:
        NotAStore: it is none; nothing is made.
        StoreDenied: it cannot be looked at.
    """
    with disk_errors(path):
        if (_absolute(path) / TAG).is_file():
            return open_root(path)
    raise NotAStore(f"{path} carries no {TAG}, so it is no store: name one with --store or SKIPPY_STORE")


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # ~ of a user that does not exist
        return path.absolute()


def require_tag(root: Root) -> None:
    """Refuse to clean a folder that no agent made.

    Raises:
        NotAStore: the tag is missing, or is not ours.
    """
    tag = root.path / TAG
    try:
        ours = tag.read_text(encoding="utf-8").startswith(f"{_SIGNATURE}\n{_OURS}")
    except (OSError, UnicodeDecodeError):
        ours = False
    if not ours:
        raise NotAStore(
            f"{root.path} carries no {TAG} of skippy-agent, so nothing in it is touched: name a store with --store"
        )
