"""The ordered patch queue of a folder, with its digest and the faults of its names."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.build.findings import Finding, Severity
from agent.build.patches.diff import DiffBroken, FileDiff, parse_diff
from agent.errors import PatchesUnreadable

_NUMBERED = re.compile(r"^(\d+)-[A-Za-z0-9][\w.+-]*\.patch$")
_MOST_BYTES = 64 * 2**20  # one patch; the largest known queue has 2 MB


@dataclass(frozen=True, kw_only=True)
class QueuedPatch:
    """One patch. `name` is relative to the folder, with `/`; `broken` says why `files` could not be read whole."""

    name: str
    path: Path
    sha256: str
    files: tuple[FileDiff, ...]
    broken: tuple[int, str] | None = None

    @property
    def number(self) -> int | None:
        """The number that its file name begins with."""
        match = _NUMBERED.match(self.path.name)
        return int(match[1]) if match else None


def read_queue(folder: Path) -> tuple[QueuedPatch, ...]:
    """The patches of `folder` and of folders in it, in the order in which they are applied: that of their names.

    Raises:
        PatchesUnreadable: the folder or a patch cannot be read.
    """
    found = []
    for path in sorted(_patches_below(folder), key=lambda path: path.relative_to(folder).as_posix()):
        try:
            if not path.is_file() or path.stat().st_size > _MOST_BYTES:
                raise PatchesUnreadable(f"{path} is no file or larger than {_MOST_BYTES >> 20} MiB: it is not a patch")
            data = path.read_bytes()
        except OSError as error:
            raise PatchesUnreadable(f"{path} cannot be read ({error.strerror}): check its permissions") from error
        files: list[FileDiff] = []
        broken = None
        try:
            files = parse_diff(data.decode("utf-8", "replace"))
        except DiffBroken as error:
            broken = (error.line, error.words)
        found.append(
            QueuedPatch(
                name=path.relative_to(folder).as_posix(),
                path=path,
                sha256=hashlib.sha256(data).hexdigest(),
                files=tuple(files),
                broken=broken,
            )
        )
    return tuple(found)


def _patches_below(folder: Path) -> Iterator[Path]:
    """Every `*.patch`; a folder that cannot be looked into is an error, since a queue without its patches has another digest."""

    def refuse(error: OSError) -> None:
        raise PatchesUnreadable(
            f"{error.filename} cannot be looked into ({error.strerror}): give the folder of the patch queue, readable with all "
            "that is in it"
        ) from error

    for place, folders, names in os.walk(folder, onerror=refuse):
        yield from (Path(place, name) for name in (*folders, *names) if name.endswith(".patch"))


def queue_digest(queue: Sequence[QueuedPatch]) -> str:
    """SHA-256 over `name LF sha256 LF` of every patch in order, as the product's own scripts compute it."""
    return hashlib.sha256("".join(f"{patch.name}\n{patch.sha256}\n" for patch in queue).encode()).hexdigest()


def check_names(queue: Sequence[QueuedPatch]) -> Iterator[Finding]:
    """Faults of the queue as a whole: numbers used twice or left out, names out of the form, files that are no patches."""
    if not queue:
        yield _finding(
            "PL001",
            "error",
            ".",
            0,
            "the folder holds no *.patch file",
            "an empty queue builds plain upstream, which is not what is served",
            "give the folder of the queue, or leave --patches out to build plain upstream",
        )
    by_folder: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for patch in queue:
        if patch.broken:
            line, words = patch.broken
            yield _finding(
                "PL005",
                "error",
                patch.name,
                line,
                words,
                "git would refuse it or apply only a part",
                "export the commit again with git format-patch",
            )
        elif not patch.files:
            yield _finding(
                "PL004",
                "error",
                patch.name,
                0,
                "the file changes nothing",
                "a patch that is empty was lost or cut",
                "export the commit again with git format-patch, or delete the file",
            )
        if patch.number is None:
            yield _finding(
                "PL006",
                "warning",
                patch.name,
                0,
                "the name is not NNNN-slug.patch",
                "the order of the queue is the order of the names",
                "rename it so that its place in the queue is plain",
            )
        else:
            by_folder[patch.name.rpartition("/")[0]][patch.number].append(patch.name)
    for numbers in by_folder.values():
        yield from _numbers(numbers)


def _numbers(numbers: dict[int, list[str]]) -> Iterator[Finding]:
    for number, names in sorted(numbers.items()):
        if len(names) > 1:
            yield _finding(
                "PL002",
                "error",
                names[1],
                0,
                f"number {number:04d} is also that of {names[0]}",
                "their order then depends on the rest of the name",
                "number the queue anew",
            )
    known = sorted(numbers)
    for before, after in itertools.pairwise(known):
        if after > before + 1:
            missing = f"{before + 1:04d}" if after == before + 2 else f"{before + 1:04d} to {after - 1:04d}"
            yield _finding(
                "PL003",
                "warning",
                numbers[after][0],
                0,
                f"{missing} before it is missing",
                "a patch may have been lost in a merge; nobody can tell from the folder",
                "number the queue anew, or state in the commit that the number was dropped",
            )


def _finding(id: str, severity: Severity, file: str, line: int, message: str, why: str, fix: str) -> Finding:  # noqa: A002
    return Finding(id=id, severity=severity, file=file, line=line, message=message, why=why, fix=fix)
