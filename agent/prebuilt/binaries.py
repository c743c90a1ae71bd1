"""The product's binaries in a folder, each with its digest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.digests import sha256_of_file
from agent.errors import BinaryChanged, BinaryMissing, FileUnreadable
from matrixgen.canonical import digest_of

CORRECTNESS = "skippy-correctness"
SERVER = "skippy-server"
PACKAGE = "skippy-model-package"
NAMES = (CORRECTNESS, SERVER, PACKAGE)
_FOLDERS = (".", "bin")  # a build keeps executables in bin/


@dataclass(frozen=True, kw_only=True)
class Toolset:
    """The binaries under test.

    Attributes:
        folder: where they were looked for.
        paths, digests: path and sha256 of each one that is there, by name.
        commit: commit of llama.cpp that the build's record names; None for a folder without a record.
        build_key: key of that build; empty without one.
    """

    folder: Path
    paths: Mapping[str, Path]
    digests: Mapping[str, str]
    commit: str | None = None
    build_key: str = ""

    @property
    def key(self) -> str:
        """The build key, else a name made of the digests."""
        return self.build_key or f"binaries-{digest_of(dict(self.digests)).removeprefix('sha256:')[:16]}"

    def need(self, name: str) -> Path:
        """The path of a binary.

        Raises:
            BinaryMissing: it is not there.
        """
        try:
            return self.paths[name]
        except KeyError:
            raise BinaryMissing(
                f"{name} is neither in {self.folder} nor in its bin: take a build that has it, or give its folder with --bin-dir"
            ) from None

    def require_unchanged(self) -> None:
        """Hash everything again.

        Raises:
            BinaryChanged: a file is not the one that was found.
        """
        for name, path in self.paths.items():
            try:
                same = sha256_of_file(path) == self.digests[name]
            except FileUnreadable:
                same = False
            if not same:
                raise BinaryChanged(
                    f"{path} is not the file any more with which the run began: nothing was proved. Run it again while "
                    "nobody writes there"
                )


def find_binaries(folder: Path, *, commit: str | None = None, build_key: str = "") -> Toolset:
    """Look for the product's binaries in `folder` and in its `bin`. None at all is an error, a missing one is told when needed.

    Raises:
        BinaryMissing: there is none, or one that may not be executed.
    """
    paths: dict[str, Path] = {}
    for name in NAMES:
        found = next((path for part in _FOLDERS if (path := folder / part / name).is_file()), None)
        if found is None:
            continue
        if not os.access(found, os.X_OK):
            raise BinaryMissing(f"{found} may not be executed: an archive lost its mode, set it with chmod +x")
        paths[name] = found.resolve()
    if not paths:
        raise BinaryMissing(f"{folder} holds none of {', '.join(NAMES)}: give the folder they were built into")
    digests = {name: sha256_of_file(path) for name, path in paths.items()}
    return Toolset(folder=folder, paths=paths, digests=digests, commit=commit, build_key=build_key)
