"""The parent of a child: starts it, reads its events, and turns its death into a result of the lane that it was in."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agent.errors import InfraError
from agent.lanes.result import LaneResult, Status
from agent.runner.job import Job

_ASSERT = re.compile(r"GGML_(?:ASSERT|ABORT).*|.*(?:terminate called|Assertion|fatal error).*")
_FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})  # signals that no fault of native code raises
_LANE_SHARE = 0.5  # of the time of a leg that one lane may take
_LOG_TAIL = 4000  # characters of the child's log that are kept


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What a child has loaded.

    Attributes:
        engine: version of llama.cpp and digests of its libraries.
        device: name, description and backend.
        nodes_by_device: graph nodes that each device computed in one decode.
    """

    engine: Mapping[str, Any]
    device: Mapping[str, Any]
    nodes_by_device: Mapping[str, int]


NOTHING_LOADED = Loaded(engine={}, device={}, nodes_by_device={})


class Observer(Protocol):
    """Who is told how a leg gets on."""

    def loaded(self, loaded: Loaded) -> None:
        """The libraries and the model are loaded; again after a child died and another one went on."""

    def lane_started(self, lane: str) -> None:
        """A lane begins."""

    def lane_finished(self, result: LaneResult) -> None:
        """A lane ended."""


@dataclass(frozen=True)
class Outcome:
    """What a leg left.

    Attributes:
        results: one for each lane of the job, in its order.
        loaded: what its children loaded; empty if none of them got that far.
        log: the end of what native code wrote.
    """

    results: tuple[LaneResult, ...]
    loaded: Loaded = NOTHING_LOADED
    log: str = ""


def supervise(job: Job, observer: Observer, timeout_seconds: float) -> Outcome:
    """Run `job` in children until every lane has a result: one that dies or hangs costs its lane only.

    A job without lanes is loaded all the same.

    Args:
        job: the battery.
        observer: told what happens.
        timeout_seconds: for all of it. One lane may take half of that, so that the others have their turn.
    """
    results: dict[str, LaneResult] = {}
    loaded = NOTHING_LOADED
    log = ""
    deadline = time.monotonic() + timeout_seconds
    remaining, more = job.lanes, True
    while more:
        attempt = _Attempt(replace(job, lanes=remaining), observer, deadline, _LANE_SHARE * timeout_seconds)
        attempt.run()
        results |= attempt.results
        loaded = attempt.loaded or loaded
        log = (log + attempt.log)[-_LOG_TAIL:]
        finished = [name for name, _ in remaining if name in results]
        remaining = tuple(lane for lane in remaining if lane[0] not in results)
        more = bool(remaining)
        if remaining and (not finished or attempt.hopeless):
            for name, _ in remaining:
                results[name] = attempt.unfinished(name)
                observer.lane_finished(results[name])
            break
    return Outcome(results=tuple(results[name] for name, _ in job.lanes), loaded=loaded, log=log)


class _Attempt:
    """One child and what it said."""

    def __init__(self, job: Job, observer: Observer, deadline: float, lane_seconds: float) -> None:
        self._job = job
        self._observer = observer
        self._deadline = deadline
        self._lane_seconds = lane_seconds
        self._timed_out = ""  # what was: the leg or the lane
        self._current: str | None = None
        self._stopped: tuple[Status, str] | None = None
        self._code = 0
        self.results: dict[str, LaneResult] = {}
        self.loaded: Loaded | None = None
        self.log = ""

    @property
    def hopeless(self) -> bool:
        """True if another child would end the same way."""
        return self._timed_out == "leg" or self._stopped is not None

    def unfinished(self, lane: str) -> LaneResult:
        """The result of a lane that this child did not reach."""
        return self._without_result(lane, *(self._stopped or self._cause_of_death("before the first lane")))

    def run(self) -> None:
        """Start the child, follow it to its end, and account for the lane in which it died."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "agent.runner.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                start_new_session=True,
                env=child_environment(),
            )
            self._watch(child)
            try:
                self._follow(child)
            finally:
                self._watchdog.cancel()
                _kill_group(child)
                for pipe in filter(None, (child.stdin, child.stdout)):
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
                self._code = child.returncode
                log.seek(0)
                self.log = log.read()[-_LOG_TAIL:]
        if self._current is not None:
            self._finish(self._without_result(self._current, *self._cause_of_death("in this lane")))

    def _follow(self, child: subprocess.Popen[str]) -> None:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("the child has no pipes")
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(self._job.to_line() + "\n")
            child.stdin.flush()
        for line in child.stdout:
            if line.endswith("\n"):  # a child that is killed may leave half a line
                self._take(json.loads(line))
                self._watchdog.cancel()
                self._watch(child)
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        child.wait()

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "loaded":
            self.loaded = Loaded(
                engine=event["engine"], device=event["device"], nodes_by_device=event["nodes_by_device"]
            )
            self._observer.loaded(self.loaded)
        elif kind == "lane-started":
            self._current = event["lane"]
            self._observer.lane_started(event["lane"])
        elif kind == "lane-finished":
            self._finish(LaneResult.from_json(event["result"]))
        elif kind == "stopped":
            self._stopped = (Status(event["status"]), event["message"])

    def _finish(self, result: LaneResult) -> None:
        self.results[result.lane] = result
        self._current = None
        self._observer.lane_finished(result)

    @staticmethod
    def _without_result(lane: str, status: Status, message: str) -> LaneResult:
        return LaneResult(lane=lane, status=status, comparisons=0, summary=message, problems=(message,))

    def _cause_of_death(self, when: str) -> tuple[Status, str]:
        if self._timed_out:
            return Status.INFRA, f"stopped by the time-out of the {self._timed_out} {when}"
        if self._code == -signal.SIGKILL:
            return Status.INFRA, f"killed by the system {when} (SIGKILL): most often out of memory"
        if -self._code in _FROM_OUTSIDE:
            return Status.INFRA, f"stopped from outside {when} ({signal.Signals(-self._code).name})"
        if self._code >= 0:
            return Status.INFRA, f"the child process ended {when} (exit code {self._code}): {last_words(self.log)}"
        return Status.FAIL, f"llama.cpp died {when} ({signal.Signals(-self._code).name}): {last_words(self.log)}"

    def _watch(self, child: subprocess.Popen[str]) -> None:
        """Begin to wait for the next event: a lane, or the loading before it, has its own limit inside that of the leg."""
        left = max(0.0, self._deadline - time.monotonic())
        what = "leg" if left <= self._lane_seconds else "lane"
        self._watchdog = threading.Timer(min(left, self._lane_seconds), self._time_out, [child, what])
        self._watchdog.daemon = True
        self._watchdog.start()

    def _time_out(self, child: subprocess.Popen[str], what: str) -> None:
        self._timed_out = what
        _kill_group(child)


def ask_child(module: str, arguments: Sequence[str], timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a module that answers one question about llama.cpp and ends.

    Raises:
        InfraError: it did not end in time.
    """
    try:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired:
        raise InfraError(f"llama.cpp did not answer within {timeout_seconds:.0f} s") from None


def child_environment() -> dict[str, str]:
    """The environment of a child: that of the parent, without a debugger being started at an abort.

    Waiting OpenMP threads sleep: with more threads than free cores, spinning ones cost hundreds of times more than they save.
    numpy starts no threads of its own: it only adds and compares here.
    """
    return {
        **os.environ,
        "GGML_NO_BACKTRACE": "1",
        "OMP_WAIT_POLICY": "passive",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def last_words(log: str) -> str:
    """The line of a dead child's log that says most: a failed assertion, else the last one."""
    asserts = [match[0].strip() for match in _ASSERT.finditer(log)]
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return (asserts or lines or ["it said nothing"])[-1]


def _kill_group(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
