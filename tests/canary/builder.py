"""Builds of llama.cpp that several tests use, each made once in a session, whichever worker comes first."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from tests.canary.upstream import Upstream, make_upstream

JOBS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Shared:
    """A folder that all workers of a session see."""

    folder: Path

    def upstream(self) -> Upstream:
        """The upstream; its commits have the same names in every session."""
        with FileLock(self.folder / "upstream.lock"):
            done = self.folder / "upstream.commit"
            if not done.is_file():
                done.write_text(make_upstream(self.folder).good, encoding="utf-8")
        return Upstream(folder=self.folder / "llama.cpp", good=done.read_text(encoding="utf-8"))

    def build(self, artifact: str, make: Callable[[Path, Path], object]) -> Path:
        """The archive of a build; `make` gets the path to write it to, and the folder of objects that builds share."""
        archive = self.folder / f"{artifact}.tar"
        ticket = archive.with_suffix(".json")  # comes last
        if not ticket.is_file():
            with FileLock(self.folder / "build.lock"):
                if not ticket.is_file():
                    make(archive, self.folder / "work")
        return archive
