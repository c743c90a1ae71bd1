"""Programs under test: in a session of their own, with logs that stay, and nothing of them left behind.

A grandchild may leave its group and its session, and then no kill of a group reaches it. Each program therefore gets a mark in
its environment that its descendants inherit, and on Linux whatever carries the mark is found and killed. Nothing else ever is.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agent.errors import BinaryUnusable
from agent.prebuilt import guard
from agent.runner.supervise import last_words

_MARK = "SKIPPY_CI_RUN"
_OF_THE_PRODUCT = ("SKIPPY_", "LLAMA_", "MESH_LLM_", "GGML_")  # would change what is tested
_SECRETS = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY")  # are none of a tested program's business
_NO_ACCELERATOR = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
_GRACE_SECONDS = 1.0  # for children that are being stopped by their parent
_STUCK_SECONDS = 5.0
_POLL_SECONDS = 0.02
_TAIL_BYTES = 64 * 2**10


def environment_for(backend: str, scratch: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a tested program.

    Settings of the product and secrets are left out. Temporary files, and with them stage configurations and materialised
    stages, go below `scratch`. A run on the CPU sees no accelerator, so that none can do the work.
    """
    inherited = os.environ if base is None else base
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.startswith(_OF_THE_PRODUCT) and not any(word in name.upper() for word in _SECRETS)
    }
    return {
        **kept,
        **(_NO_ACCELERATOR if backend == "cpu" else {}),
        "TMPDIR": str(scratch),
        "MESH_LLM_DATA_DIR": str(scratch),
        "HF_HUB_OFFLINE": "1",
        "GGML_NO_BACKTRACE": "1",
        "OMP_WAIT_POLICY": "passive",
    }


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        code: its exit code; the negative number of a signal.
        timed_out: it had to be stopped.
        left: processes of it that outlived it; they were killed.
        stuck: those of them that no kill ended.
        seconds: wall time.
        words: the line of its log that says most.
    """

    code: int
    timed_out: bool
    left: tuple[int, ...]
    stuck: tuple[int, ...]
    seconds: float
    words: str


@dataclass
class Program:
    """A running program; as a context manager it is stopped at the end, with all that it started.

    Attributes:
        argv: program and arguments.
        log: where its standard output and error go, as ``<log>.out`` and ``<log>.err``.
        environment: see `environment_for`.
    """

    argv: Sequence[str | Path]
    log: Path
    environment: Mapping[str, str]
    _mark: str = field(default_factory=lambda: secrets.token_hex(16))
    _child: subprocess.Popen[bytes] | None = None
    _started: float = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def output(self) -> Path:
        """File of its standard output."""
        return self.log.with_name(f"{self.log.name}.out")

    @property
    def errors(self) -> Path:
        """File of its standard error."""
        return self.log.with_name(f"{self.log.name}.err")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._require_child().pid

    def start(self) -> None:
        """Start it.

        Raises:
            BinaryUnusable: the system cannot execute it.
        """
        self._started = time.monotonic()
        # opened here, so that a full disk is not taken for a binary that does not run
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            try:
                self._child = subprocess.Popen(
                    [*_guard(), *map(str, self.argv)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env={**self.environment, _MARK: self._mark},
                    start_new_session=True,
                )
            except OSError as error:
                raise BinaryUnusable(
                    f"{self.argv[0]} cannot be executed here ({error.strerror}): take the build of this system and processor"
                ) from error

    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._child is None else self._child.poll()

    def wait(self, seconds: float) -> Ended:
        """Wait for its end, at most `seconds`, and stop whatever is left."""
        child = self._require_child()
        timed_out = False
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        return self._clean_up(timed_out=timed_out)

    def stop(self) -> None:
        """Kill it, if it still runs, and all that it started."""
        if self._child is not None:
            self._clean_up(timed_out=self._child.poll() is None)

    def processes(self) -> tuple[int, ...]:
        """It and all that it started, as far as they live; empty where the system does not tell."""
        return tuple(_marked(self._mark))

    def words(self) -> str:
        """The line of its log that says most."""
        return last_words(tail_of(self.errors) or tail_of(self.output))

    def _clean_up(self, *, timed_out: bool) -> Ended:
        child = self._require_child()
        if child.returncode is None:  # its pid is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        grace = 0.0 if timed_out else _GRACE_SECONDS
        left = _remaining(self._mark, grace)
        for pid in left:
            _kill(pid, self._mark)
        return Ended(
            code=child.returncode,
            timed_out=timed_out,
            left=() if timed_out else left,
            stuck=_remaining(self._mark, _STUCK_SECONDS) if left else (),
            seconds=time.monotonic() - self._started,
            words=self.words(),
        )

    def _require_child(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise RuntimeError("the program was not started")
        return self._child


def run_program(argv: Sequence[str | Path], log: Path, environment: Mapping[str, str], seconds: float) -> Ended:
    """Run a program to its end, at most `seconds`.

    Raises:
        BinaryUnusable: the system cannot execute it.
    """
    with Program(argv, log, environment) as program:
        return program.wait(seconds)


def tail_of(path: Path) -> str:
    """The end of a log; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _guard() -> list[str]:
    """What stands before a program, so that it dies with this process; nothing where the system cannot do that."""
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", guard.__file__, str(os.getpid())]


def _remaining(mark: str, seconds: float) -> tuple[int, ...]:
    """The processes that carry `mark`, after they had `seconds` to end."""
    deadline = time.monotonic() + seconds
    while found := tuple(_marked(mark)):
        if time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_SECONDS)
    return ()


def _marked(mark: str) -> Iterator[int]:
    """Living processes that carry the mark; none can be found where there is no /proc."""
    for entry in Path("/proc").glob("[0-9]*"):
        if _carries(int(entry.name), mark):
            yield int(entry.name)


def _carries(pid: int, mark: str) -> bool:
    try:
        return f"{_MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it ended, or is somebody else's
        return False


def _kill(pid: int, mark: str) -> None:
    """Kill `pid` if it still is the process that was found: its number may have been given away."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if _carries(pid, mark):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
