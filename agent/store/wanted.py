"""What is asked of a store: one file of one revision, with the size and the sha256 that the plan gives it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from agent.errors import NotPinned
from agent.header.text import shown

if TYPE_CHECKING:
    from matrixgen.family import Artifact, Family

_HEX40 = re.compile(r"[0-9a-f]{40}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_REPO = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A file, by where it stands in its repository and by what it holds. Size in bytes, sha256 in hex.

    Raises:
        NotPinned: revision, size or digest is missing or inexact, or the name could lead elsewhere.
    """

    repo: str
    revision: str
    path: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.path).parts
        faults = {
            f"the repository {shown(self.repo)!r} is not OWNER/NAME": not _REPO.fullmatch(self.repo),
            f"the revision {shown(str(self.revision))!r} is not a full commit id": not _HEX40.fullmatch(self.revision),
            f"the sha256 {shown(str(self.sha256))!r} is not 64 lower-case hex digits": not _HEX64.fullmatch(
                self.sha256
            ),
            f"the size {self.size} is not one": self.size < 0,
            "the path is not a plain relative one": (
                not parts
                or self.path.startswith("/")
                or ".." in parts
                or "\\" in self.path
                or not self.path.isprintable()
            ),
        }
        for fault, present in faults.items():
            if present:
                raise NotPinned(f"{shown(self.path)}: {fault}: correct the row of the manifest")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    def fits(self, size: int) -> bool:
        """Whether a file of so many bytes may be this one."""
        return size == self.size

    def __str__(self) -> str:
        return f"{self.path} of {self.repo}@{self.revision[:12]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sought:
    """A small file that is looked for by its name alone, because nothing says what it holds; so it proves nothing by itself.

    Attributes:
        name: without folders.
        most: bytes; a larger one is not read.
    """

    name: str
    most: int

    @property
    def path(self) -> str:
        """Where it stands: at the top."""
        return self.name

    def fits(self, size: int) -> bool:
        """Whether a file of so many bytes may be this one."""
        return 0 < size <= self.most

    def __str__(self) -> str:
        return self.name


def wanted_files(artifact: Artifact) -> tuple[Wanted, ...]:
    """All files of an artifact.

    Raises:
        NotPinned: its revision, or size or sha256 of a file, is not known.
    """
    if not artifact.pinned or artifact.revision is None:
        raise NotPinned(
            f"{artifact.repo} is not pinned: give the row a full revision, and size and sha256 of every file "
            "(`matrixgen pin` finds them)"
        )
    return tuple(
        Wanted(
            repo=artifact.repo,
            revision=artifact.revision,
            path=file.path,
            size=file.size if file.size is not None else -1,
            sha256=file.sha256 or "",
        )
        for file in artifact.files
    )


def wanted_of(family: Family) -> tuple[tuple[Wanted, ...], ...]:
    """The files of a family's weights, then those of its projector where it has one: one tuple a set that belongs together.

    Raises:
        NotPinned: see `wanted_files`; also where the family has no weights.
    """
    if family.artifact is None:
        raise NotPinned(f"the row {family.family} names no weights: add an artifact to it, or use --twin")
    return tuple(wanted_files(artifact) for artifact in (family.artifact, family.projector) if artifact is not None)


def first_shard(files: tuple[Wanted, ...]) -> Wanted:
    """The file to open: shard 1 of a split model, whatever the order in which files are listed; else the first one."""
    return next((file for file in files if re.search(r"-00001-of-\d{5}\.gguf$", file.path)), files[0])
