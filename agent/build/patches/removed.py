"""Upstream lines that a queue takes away and that a reviewer must see: each was put there against a fault."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agent.build.findings import Finding
from agent.build.named_file import read_named
from agent.build.patches.diff import Change, FileDiff
from agent.build.patches.queue import QueuedPatch
from agent.errors import PatchesUnreadable

_SOURCES = (
    ".c",
    ".cc",
    ".cpp",
    ".cxx",
    ".h",
    ".hh",
    ".hpp",
    ".inc",
    ".cu",
    ".cuh",
    ".m",
    ".mm",
    ".metal",
    ".comp",
    ".cl",
    ".hip",
)
_COMMENT = re.compile(r"^\s*(?://|/\*|\*)")
_WINDOW, _OVERLAP = 1024, 128  # characters of a line that one search sees, so that no line takes long
REVIEWED = "reviewed.txt"


class Guard(NamedTuple):
    """A kind of line that guards against a fault: one that holds `pattern`, and `then` behind it where that is given."""

    id: str
    what: str
    pattern: re.Pattern[str]
    why: str
    then: re.Pattern[str] | None = None

    def stands_in(self, line: str) -> bool:
        """Whether a line is of this kind. Time grows with the length of the line, whatever it holds."""
        for start in range(0, max(len(line), 1), _WINDOW):
            found = self.pattern.search(line, start, start + _WINDOW + _OVERLAP)
            if found:
                return self.then is None or self.then.search(line, found.end()) is not None
        return False


GUARDS = (
    Guard(
        "PL020",
        "a synchronisation",
        re.compile(r"(?:synchronize|_sync|barrier|event_wait|wait_idle)\w*\s*\(", re.IGNORECASE),
        "asynchronous copies may then still run when their buffers are read or freed; only accelerators show it",
    ),
    Guard(
        "PL021",
        "an assertion",
        re.compile(r"\b(?:GGML_ASSERT|GGML_ABORT|GGML_UNREACHABLE|assert|static_assert|_Static_assert)\s*\("),
        "what upstream held impossible then goes on with wrong data",
    ),
    Guard(
        "PL022",
        "a bounds check",
        re.compile(r"\bstd::clamp\s*\(|\bout_of_range\b|\boverflow_error\b"),
        "an index or a size that is out of bounds is then used",
    ),
    Guard(
        "PL022",
        "a bounds check",
        re.compile(r"\bif\s*(?:constexpr\s*)?\("),
        "an index or a size that is out of bounds is then used",
        then=re.compile(r"(?<![-<>])[<>]=?(?![<>])|\bis_valid|\bin_range|\boverflow"),
    ),
    Guard(
        "PL023",
        "a registry entry",
        re.compile(
            r"\bcase\s+(?:LLM_|LLAMA_|GGML_)\w+\s*:|^\s*\{\s*(?:LLM_|LLAMA_|GGML_)\w+\s*,"
            r"|^\s*(?:LLM_ARCH|LLM_KV|LLM_TENSOR|GGML_OP|GGML_TYPE)_\w+\s*(?:=\s*\d+\s*)?,"
            r"|(?:_register|register_)\w*\s*\("
        ),
        "an architecture, tensor, key or operation is then unknown, or its special case is lost",
    ),
)
_FIX = "put the line back, or have it reviewed and add `{fingerprint}` with the reason to {file}"


def check_removed(
    queue: Sequence[QueuedPatch], reviewed: frozenset[str] = frozenset(), reviewed_name: str = REVIEWED
) -> Iterator[Finding]:
    """A finding for every guard of upstream that the queue removes for good.

    A line that the same patch adds again in the same file has only moved. One that an earlier patch of the queue added is
    not upstream's. Reviewed fingerprints are passed over; those that match nothing any more are named.
    """
    ours: dict[str, Counter[str]] = defaultdict(Counter)
    met: set[str] = set()
    for patch in queue:
        for file in patch.files:
            for guard, change in _lost(file, ours[file.path]):
                mark = fingerprint(guard.id, file.path, change.text)
                met.add(mark)
                if mark in reviewed:
                    continue
                yield Finding(
                    id=guard.id,
                    severity="error",
                    file=patch.name,
                    line=change.patch_line,
                    message=f"{guard.what} of {file.path}:{change.file_line} is removed: {change.text.strip()[:160]}",
                    why=guard.why,
                    fix=_FIX.format(fingerprint=mark, file=reviewed_name),
                )
            if file.new is None and file.path.endswith(_SOURCES):
                yield Finding(
                    id="PL024",
                    severity="warning",
                    file=patch.name,
                    line=file.patch_line,
                    message=f"the file {file.path} is deleted",
                    why="everything in it is lost, guards among it",
                    fix="say in the message of the patch what replaces it",
                )
            for hunk in file.hunks:
                ours[file.new or file.path].update(_key(change.text) for change in hunk.added)
    for mark in sorted(reviewed - met):
        yield Finding(
            id="PL030",
            severity="warning",
            file=reviewed_name,
            line=0,
            message=f"{mark} matches no removed line any more",
            why="what is listed as reviewed should be what the queue does",
            fix="delete the line",
        )


def fingerprint(guard: str, path: str, text: str) -> str:
    """What names a removed line in the list of reviewed ones: it survives a rebase, not an edit of the line."""
    digest = hashlib.sha256("\0".join((path, _key(text))).encode()).hexdigest()
    return f"{guard}-{digest[:16]}"


def read_reviewed(path: Path) -> frozenset[str]:
    """Fingerprints of a list: one at the beginning of a line, then the reason; `#` begins a comment.

    Raises:
        FileUnreadable: it cannot be read.
        PatchesUnreadable: a line has no reason.
    """
    found = set()
    for number, line in enumerate(read_named(path).splitlines(), 1):
        mark, _, reason = line.strip().partition(" ")
        if not mark or mark.startswith("#"):
            continue
        if not reason.strip():
            raise PatchesUnreadable(f"{path}:{number}: {mark} has no reason: write why the line may go")
        found.add(mark)
    return frozenset(found)


def _lost(file: FileDiff, ours: Counter[str]) -> Iterator[tuple[Guard, Change]]:
    if not file.path.endswith(_SOURCES):
        return
    kept = Counter(_key(change.text) for hunk in file.hunks for change in hunk.added)
    for change in (change for hunk in file.hunks for change in hunk.removed):
        if _COMMENT.match(change.text):
            continue
        guard = next((guard for guard in GUARDS if guard.stands_in(change.text)), None)
        if guard is None:
            continue
        key = _key(change.text)
        if kept[key] > 0:
            kept[key] -= 1
        elif ours[key] > 0:
            ours[key] -= 1
        else:
            yield guard, change


def _key(text: str) -> str:
    return " ".join(text.split())
