"""Unified diffs as git writes them, with the line of each change in the patch and in the file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_HEADER = re.compile(r"^diff --git (?:\"?a/(?P<old>.*?)\"?) (?:\"?b/(?P<new>.*?)\"?)$")


@dataclass(frozen=True, slots=True)
class Change:
    """A line that is added or removed: its text, its line in the patch, and its line in the old or the new file."""

    text: str
    patch_line: int
    file_line: int


@dataclass
class Hunk:
    """One hunk; `start` is its first line in the old file."""

    start: int
    patch_line: int
    removed: list[Change] = field(default_factory=list)
    added: list[Change] = field(default_factory=list)


@dataclass
class FileDiff:
    """The changes of one file. `old` and `new` are None for a file that is made or deleted."""

    old: str | None
    new: str | None
    patch_line: int
    hunks: list[Hunk] = field(default_factory=list)
    binary: bool = False

    @property
    def path(self) -> str:
        """The name of the file before the patch, or after it where it is new."""
        return self.old or self.new or ""


class DiffBroken(Exception):
    """A hunk has other lines than its head announces. `line` is 1-based, in the patch."""

    def __init__(self, line: int, words: str) -> None:
        super().__init__(line, words)
        self.line = line
        self.words = words


def parse_diff(text: str) -> list[FileDiff]:
    """Every file that a patch changes, in its order; mail headers and signatures are passed over.

    Raises:
        DiffBroken: a hunk is cut short or holds a line that no diff has.
    """
    lines = text.split("\n")
    files: list[FileDiff] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        if match := _HEADER.match(line):
            files.append(FileDiff(match["old"], match["new"], place + 1))
        elif files and line.startswith("new file mode"):
            files[-1].old = None
        elif files and line.startswith("deleted file mode"):
            files[-1].new = None
        elif files and line.startswith(("GIT binary patch", "Binary files ")):
            files[-1].binary = True
        elif line.startswith("--- ") and place + 1 < len(lines) and lines[place + 1].startswith("+++ "):
            old, new = _name(line[4:]), _name(lines[place + 1][4:])
            if files and not files[-1].hunks and files[-1].path in (old, new):
                files[-1].old, files[-1].new = old, new
            else:
                files.append(FileDiff(old, new, place + 1))
            place += 1
        elif files and (match := _HUNK.match(line)):
            place = _read_hunk(lines, place, match, files[-1])
            continue
        place += 1
    return files


def _read_hunk(lines: list[str], place: int, head: re.Match[str], target: FileDiff) -> int:
    old, new = int(head[1]), int(head[3])
    old_end, new_end = old + int(head[2] or 1), new + int(head[4] or 1)
    hunk = Hunk(start=old, patch_line=place + 1)
    target.hunks.append(hunk)
    place += 1
    while old < old_end or new < new_end:
        if place >= len(lines):
            raise DiffBroken(hunk.patch_line, "the hunk is cut short")
        line = lines[place]
        sign = line[:1]
        if sign == "-":
            hunk.removed.append(Change(line[1:], place + 1, old))
            old += 1
        elif sign == "+":
            hunk.added.append(Change(line[1:], place + 1, new))
            new += 1
        elif sign == " " or line in ("", "\r"):  # mail programs drop the blank of an empty line
            old, new = old + 1, new + 1
        elif sign != "\\":
            raise DiffBroken(place + 1, f"the hunk that begins in line {hunk.patch_line} holds no line of a diff here")
        place += 1
    if old > old_end or new > new_end:
        raise DiffBroken(hunk.patch_line, "the hunk has more lines than its head announces")
    return place


def _name(text: str) -> str | None:
    name = text.split("\t", maxsplit=1)[0].strip().strip('"')
    return None if name == "/dev/null" else re.sub(r"^[ab]/", "", name)
