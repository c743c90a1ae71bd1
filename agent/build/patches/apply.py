"""Does the queue apply, in order, to a checkout? Tried on a copy of the files that it touches."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from agent.build.compiler import run_tool
from agent.build.findings import Finding
from agent.build.patches.queue import QueuedPatch
from agent.errors import BuildFailed, FileUnreadable

_FAILED = re.compile(r"^error: patch failed: (.*):(\d+)$", re.MULTILINE)
_WHY = "a queue that does not apply has no build, so nothing can be certified"
_FIX = "rebase the patch on the pin (git am --3way shows the conflict), then export it again"
# the user's configuration of git must not change what applies
_GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


def check_applies(queue: Sequence[QueuedPatch], checkout: Path) -> tuple[Finding, ...]:
    """Findings for the first patch that does not apply; those behind it are not tried."""
    with tempfile.TemporaryDirectory(prefix="skippy-patches-") as folder:
        copy = Path(folder)
        for name in {name for patch in queue for file in patch.files for name in (file.old, file.new) if name}:
            _copy(checkout, copy, name)
        return tuple(apply_queue(queue, copy))


def apply_queue(queue: Sequence[QueuedPatch], tree: Path) -> Iterator[Finding]:
    """Apply to `tree`, which is changed; stop with findings at the first patch that does not apply.

    Raises:
        BuildFailed: git cannot work in `tree`.
    """
    # a repository of its own, or git would look at the one around it
    made = run_tool(["git", "init", "-q", "."], cwd=tree, environment=_GIT)
    if made.returncode != 0:
        raise BuildFailed(f"git init failed in a copy of the sources: {made.stderr.strip()}")
    for place, patch in enumerate(queue):
        done = run_tool(["git", "apply", "--whitespace=nowarn", str(patch.path.resolve())], cwd=tree, environment=_GIT)
        if done.returncode == 0:
            continue
        yield from _conflicts(patch, done.stderr)
        if rest := len(queue) - place - 1:
            yield Finding(
                id="PL011",
                severity="warning",
                file=patch.name,
                line=0,
                message=f"{rest} patches behind it were not tried",
                why="each builds on those before it",
                fix="mend the first one and run again",
            )
        return


def _conflicts(patch: QueuedPatch, words: str) -> Iterator[Finding]:
    failed = _FAILED.findall(words)
    for path, line in failed:
        hunks = next((file.hunks for file in patch.files if path in (file.old, file.new)), [])
        places = {hunk.start: place for place, hunk in enumerate(hunks, 1)}
        place = places.get(int(line), 0)
        where = f"hunk {place} of {len(hunks)}, " if place else ""
        yield Finding(
            id="PL010",
            severity="error",
            file=patch.name,
            line=hunks[place - 1].patch_line if place else 0,
            message=f"does not apply to {path} ({where}line {line} of the file)",
            why=_WHY,
            fix=_FIX,
        )
    if not failed:
        lines = [line for line in words.splitlines() if line.startswith(("error:", "fatal:"))] or words.splitlines()
        yield Finding(
            id="PL010",
            severity="error",
            file=patch.name,
            line=0,
            message=f"does not apply: {(lines or ['git said nothing'])[0]}",
            why=_WHY,
            fix=_FIX,
        )


def _copy(checkout: Path, copy: Path, name: str) -> None:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        return  # git refuses such a patch by itself, in its own words
    source, target = checkout / parts, copy / parts
    try:
        # a link of a checkout may lead anywhere on this machine
        if not source.is_file() or source.is_symlink() or not source.resolve().is_relative_to(checkout.resolve()):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    except OSError as error:
        raise FileUnreadable(f"{source} cannot be copied ({error.strerror}): check its permissions") from error
