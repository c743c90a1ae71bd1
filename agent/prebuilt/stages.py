"""The stage servers that `skippy-correctness` starts, seen through the shim."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from agent.prebuilt import stage_shim
from agent.prebuilt.processes import tail_of
from agent.runner.supervise import last_words

_SCRIPT = "stage-server"


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """A stage server that ended by itself: exit code, or the negative number of a signal, and its last words."""

    code: int
    words: str


def write_shim(server: Path, folder: Path) -> Path:
    """Write an executable that runs `server` and keeps its logs in `folder`; returns its path."""
    # a shell script, since a path in a first line of another interpreter may be neither long nor hold a blank
    words = [sys.executable, "-I", "-S", str(Path(stage_shim.__file__)), str(server), str(folder)]
    path = folder / _SCRIPT
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def stage_ends(folder: Path) -> tuple[StageEnd, ...]:
    """The servers that ended by themselves; one that was stopped by its parent is none of them.

    The script and what only it needs are removed: logs and ends stay.
    """
    for path in (*folder.glob("stage-*.pid"), folder / _SCRIPT):
        path.unlink(missing_ok=True)
    found = []
    for path in sorted(folder.glob("stage-*.json")):
        try:
            code = int(json.loads(path.read_text(encoding="utf-8"))["code"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it was being written when everything was killed
        found.append(StageEnd(code=code, words=last_words(tail_of(path.with_suffix(".log")))))
    return tuple(found)
