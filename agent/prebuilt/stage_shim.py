"""Stands between `skippy-correctness` and the stage server that it starts: keeps the server's log and how it ended.

`skippy-correctness` throws the output of its children away, and a child that dies by a signal is for its caller the same exit
code 1 as a full disk. Besides, it kills its children as soon as a connection breaks, so that the process which it knows may be
gone before it could say why. Hence two processes: this script, which can be killed at any time, and its recorder, which starts
the server, writes its output to ``stage-<pid>.log``, and its exit code to ``stage-<pid>.json`` if it ended by itself.

If the script is killed, the recorder kills the server, which may take a moment to give its port back; the next one, which gets
the same port, waits for that. Nothing of this project is imported, so that it starts quickly.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PF_EXITING = 0x4
_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 0.02


def main(server: str, folder: str, *arguments: str) -> int:
    """Run `server` with `arguments`; returns its exit code, or dies by the signal that killed it."""
    home, me, parent = Path(folder), os.getpid(), os.getppid()
    _wait_for_orphans(home)
    recorder = os.fork()
    if recorder == 0:
        _record([server, *arguments], home / f"stage-{me}", me)
        os._exit(0)
    while os.waitpid(recorder, os.WNOHANG) == (0, 0):
        if os.getppid() != parent:  # nobody is left who wants the server
            os.kill(me, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    code = int(json.loads((home / f"stage-{me}.json").read_text(encoding="utf-8"))["code"])
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(me, -code)
    return code


def _record(words: list[str], base: Path, script: int) -> None:
    """Run the server and write down how it ended, unless it ended because its script was killed."""
    stopped = False
    child: subprocess.Popen[bytes] | None = None

    def stop(*_: object) -> None:
        nonlocal stopped
        if child is not None and _dying(child.pid):
            return  # its death is why the script was killed, and not the other way round
        stopped = True
        if child is not None:
            child.kill()

    signal.signal(signal.SIGTERM, stop)
    me = os.getpid()
    _die_with(script, signal.SIGTERM)
    with base.with_suffix(".log").open("wb") as log:
        child = subprocess.Popen(
            words,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: _die_with(me, signal.SIGKILL),  # noqa: PLW1509 - this process has one thread
        )
    base.with_suffix(".pid").write_text(str(child.pid), encoding="ascii")
    if stopped:  # before there was anything to stop
        child.kill()
    code = child.wait()
    if not (stopped and code == -signal.SIGKILL):
        base.with_suffix(".json").write_text(json.dumps({"code": code, "arguments": words[1:]}), encoding="utf-8")


def _wait_for_orphans(home: Path) -> None:
    """Wait for servers whose own script was killed; those of a living one belong to another stage of the same chain."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for path in home.glob("stage-*.pid"):
        script, server = int(path.stem.partition("-")[2]), int(path.read_text(encoding="ascii") or 0)
        while server and not _lives(script) and _lives(server) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def _dying(process: int) -> bool:
    """True if a child is on its way out, or was already waited for; connections break only after that can be seen."""
    if sys.platform != "linux":
        return False
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return True
    return bool(int(fields[6]) & _PF_EXITING)  # the ninth field of proc(5)


def _die_with(parent: int, number: int) -> None:
    """Get the signal `number` when `parent` dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the line above
            os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
