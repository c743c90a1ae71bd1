"""`hf download` lines for the files of a selection, each at its exact revision."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrixgen.family import Family


def download_lines(families: Sequence[Family]) -> list[str]:
    """One line an artifact, in the order of the families; what cannot be fetched exactly is a comment that says why."""
    seen: set[str] = set()
    lines = []
    for family in families:
        for line in _lines(family):
            if line not in seen:
                lines.append(line)
            seen.add(line)
    return lines


def _lines(family: Family) -> Iterator[str]:
    if family.dropped:
        yield f"# {family.family}: dropped, nothing is fetched"
        return
    if family.unpinned:
        yield f"# {family.family}: {family.unpinned}"
        return
    for artifact in (family.artifact, family.projector):
        if artifact is not None and artifact.revision is not None:
            files = " ".join(shlex.quote(file.path) for file in artifact.files)
            yield f"hf download {shlex.quote(artifact.repo)} {files} --revision {artifact.revision}"
