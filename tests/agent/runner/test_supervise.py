"""The parent and its child: whatever happens to one lane is the result of that lane, and nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.contracts import load_contracts
from agent.engine.devices import list_devices
from agent.lanes.result import LaneResult, Status
from agent.runner.job import Job
from agent.runner.supervise import Loaded, Outcome, child_environment, last_words, supervise
from agent.twin.catalog import recipe_for
from matrixgen.manifest import Manifest
from tests.agent.conftest import ROOT

CHAIN = {"prompt_tokens": 20, "micro_batch": 16, "decode_steps": 2}
# llama.cpp of the pin aborts when the sequences do not divide the micro-batch
ABORTING = {**CHAIN, "micro_batch": 15}

Jobs = Callable[..., Job]


@pytest.fixture
def job(manifest: Manifest, twin: Callable[[str], Path]) -> Jobs:
    """A job on the twin of a family."""

    def make(family: str, *lanes: tuple[str, Mapping[str, Any]], **changes: Any) -> Job:
        row = manifest.family(family)
        return Job(
            **{
                "model": twin(family),
                "device": "cpu",
                "threads": 1,
                "family": row,
                "random_weights": True,
                "recorded": load_contracts(manifest.root).get(row.arch or ""),
                "lanes": lanes,
                "twin": recipe_for(row.arch or "", family=family).name,
                **changes,
            }
        )

    return make


@dataclass
class Log:
    """What the observer was told; `on_start` is called in the thread that started the child."""

    started: list[str] = field(default_factory=list)
    finished: list[LaneResult] = field(default_factory=list)
    loads: list[Loaded] = field(default_factory=list)
    on_start: Callable[[str], None] = lambda _lane: None

    def loaded(self, loaded: Loaded) -> None:
        self.loads.append(loaded)

    def lane_started(self, lane: str) -> None:
        self.started.append(lane)
        self.on_start(lane)

    def lane_finished(self, result: LaneResult) -> None:
        self.finished.append(result)


def statuses(outcome: Outcome) -> dict[str, Status]:
    """Status by lane, in the order of the job."""
    return {result.lane: result.status for result in outcome.results}


def children_of_this_thread() -> list[int]:
    """Processes that this thread started and that are still there."""
    listed = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text(encoding="ascii")
    return [int(word) for word in listed.split()]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After every test of this file, no child of it is there any more."""
    before = set(children_of_this_thread())
    yield
    assert set(children_of_this_thread()) <= before


def test_all_lanes_run_in_order_in_one_child(job: Jobs, children: list[list[str]]) -> None:
    """A sound job needs one process; the observer hears of each lane, and the outcome says where the work was done."""
    log = Log()
    outcome = supervise(job("qwen3-dense", ("inspect", {}), ("contract", {}), ("single-step", CHAIN)), log, 120)
    assert list(statuses(outcome).values()) == [Status.PASS] * 3
    assert log.started == [result.lane for result in log.finished] == ["inspect", "contract", "single-step"]
    assert tuple(log.finished) == outcome.results
    assert sum("agent.runner.child" in words for words in children) == 1
    assert outcome.loaded.engine["version"]
    assert all(len(digest) == 64 for digest in outcome.loaded.engine["libraries"].values())
    assert any(name.startswith("libllama") for name in outcome.loaded.engine["libraries"])
    assert outcome.loaded.device["backend"] == "cpu"
    assert set(outcome.loaded.nodes_by_device) == {outcome.loaded.device["name"]}
    assert sum(outcome.loaded.nodes_by_device.values()) > 100
    assert all(result.seconds > 0 for result in outcome.results)


def test_an_abort_in_native_code_costs_its_lane_only(job: Jobs, children: list[list[str]]) -> None:
    """The lane fails with the text of the assertion, and the lanes after it run in another child."""
    log = Log()
    outcome = supervise(job("kimi-linear", ("inspect", {}), ("single-step", ABORTING), ("cache-policy", {})), log, 300)
    assert statuses(outcome) == {
        "inspect": Status.PASS,
        "single-step": Status.FAIL,
        "cache-policy": Status.PASS,
    }
    died = outcome.results[1]
    assert "GGML_ASSERT(" in died.summary
    assert "SIGABRT" in died.summary
    assert died.comparisons == 0
    assert died.problems == (died.summary,)
    assert "GGML_ASSERT(" in outcome.log
    assert [result.lane for result in log.finished] == ["inspect", "single-step", "cache-policy"]
    assert sum("agent.runner.child" in words for words in children) == 2


def test_two_aborts_cost_two_lanes(job: Jobs) -> None:
    """Each further abort is its own lane's result, whichever lane comes last."""
    outcome = supervise(job("kimi-linear", ("chain", ABORTING), ("inspect", {}), ("single-step", ABORTING)), Log(), 300)
    assert list(statuses(outcome).values()) == [Status.FAIL, Status.PASS, Status.FAIL]


def kill_child() -> None:
    """Kill the child as the system does when memory runs out."""
    (child,) = children_of_this_thread()
    os.kill(child, signal.SIGKILL)


def test_a_child_that_the_system_kills_is_infra(job: Jobs) -> None:
    """SIGKILL says nothing about the model; the other lanes still run."""
    log = Log()
    log.on_start = lambda lane: kill_child() if lane == "single-step" else None
    long = {**CHAIN, "decode_steps": 100}
    outcome = supervise(job("qwen3-dense", ("inspect", {}), ("single-step", long), ("cache-policy", {})), log, 120)
    assert statuses(outcome) == {
        "inspect": Status.PASS,
        "single-step": Status.INFRA,
        "cache-policy": Status.PASS,
    }
    assert "SIGKILL" in outcome.results[1].summary


def test_a_child_that_ends_by_another_signal_is_a_fail(job: Jobs) -> None:
    """A crash is the model's or the pin's, with the name of the signal."""

    def crash(lane: str) -> None:
        (child,) = children_of_this_thread()
        os.kill(child, signal.SIGSEGV)

    long = {**CHAIN, "decode_steps": 100}
    outcome = supervise(job("qwen3-dense", ("single-step", long)), Log(on_start=crash), 120)
    assert outcome.results[0].status is Status.FAIL
    assert "SIGSEGV" in outcome.results[0].summary


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_child_that_was_stopped_from_outside_is_infra(job: Jobs, number: signal.Signals) -> None:
    """Whoever cleans up a machine blames no model."""

    def stop(_lane: str) -> None:
        (child,) = children_of_this_thread()
        os.kill(child, number)

    long = {**CHAIN, "decode_steps": 100}
    outcome = supervise(job("qwen3-dense", ("single-step", long)), Log(on_start=stop), 120)
    assert outcome.results[0].status is Status.INFRA


@pytest.fixture
def startup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make every child run a piece of code in a thread of its own, from the moment at which Python starts."""

    def install(code: str) -> None:
        body = "\n".join(f"    {line}" for line in code.strip().splitlines())
        text = (
            "import os, signal, stat, sys, threading, time\n"
            "def is_pipe(fd):\n"
            "    try:\n"
            "        return stat.S_ISFIFO(os.fstat(fd).st_mode)\n"
            "    except OSError:\n"
            "        return False\n"
            "def events_open():\n"
            "    return os.fstat(1).st_ino == os.fstat(2).st_ino\n"
            f"def run():\n{body}\n"
            "if 'agent.runner.child' in ' '.join(sys.orig_argv):\n"
            "    threading.Thread(target=run, daemon=True).start()\n"
        )
        (tmp_path / "sitecustomize.py").write_text(text, encoding="utf-8")
        paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    return install


def test_a_child_that_is_killed_before_the_first_lane_is_infra(job: Jobs, startup: Callable[[str], None]) -> None:
    """Out of memory while the model is loaded: every lane is infra, none is blamed on the model."""
    startup("os.kill(os.getpid(), signal.SIGKILL)")
    outcome = supervise(job("qwen3-dense", ("inspect", {}), ("contract", {})), Log(), 120)
    assert list(statuses(outcome).values()) == [Status.INFRA] * 2
    assert all("SIGKILL" in result.summary for result in outcome.results)
    assert outcome.loaded.engine == outcome.loaded.device == {}


def test_a_child_that_crashes_before_the_first_lane_is_a_fail(
    job: Jobs, startup: Callable[[str], None], children: list[list[str]]
) -> None:
    """A library that dies at once is not tried again and again; its last words are kept."""
    startup("os.write(2, b'Illegal instruction in ggml\\n'); os.kill(os.getpid(), signal.SIGILL)")
    outcome = supervise(job("qwen3-dense", ("inspect", {}), ("contract", {})), Log(), 120)
    assert list(statuses(outcome).values()) == [Status.FAIL] * 2
    assert all("Illegal instruction in ggml" in result.summary for result in outcome.results)
    assert sum("agent.runner.child" in words for words in children) == 1


def test_what_native_code_prints_never_breaks_events(job: Jobs, startup: Callable[[str], None]) -> None:
    """Lines, halves of lines, JSON and bytes that are no text, on standard output: all of it goes to the log."""
    startup(
        """
while not events_open():
    time.sleep(0.001)
for _ in range(200):
    os.write(1, b'{"event": "lane-finished"}\\n{"event": \\xff\\xfe noise')
    time.sleep(0.002)
"""
    )
    outcome = supervise(job("qwen3-dense", ("inspect", {}), ("single-step", CHAIN)), Log(), 120)
    assert list(statuses(outcome).values()) == [Status.PASS] * 2
    assert "noise" in outcome.log
    assert len(outcome.log) <= 4000


def test_half_an_event_of_a_dying_child_is_left_out(job: Jobs, startup: Callable[[str], None]) -> None:
    """A child that is killed while it writes leaves half a line, which is no event and no error."""
    startup(
        """
while not events_open():
    time.sleep(0.001)
events = next(fd for fd in range(3, 64) if is_pipe(fd))
os.write(events, b'{"event": "lane-finished", "result": {"la')
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    outcome = supervise(job("qwen3-dense", ("inspect", {})), Log(), 120)
    assert outcome.results[0].status is Status.INFRA
    assert "SIGKILL" in outcome.results[0].summary


class _Alarm(threading.Thread):
    """A clock that rings when it is told to, so that no test depends on how fast the machine is."""

    rings = threading.Event()

    def __init__(self, _seconds: float, function: Callable[..., None], arguments: list[Any]) -> None:
        super().__init__(daemon=True)
        self._over = False
        self._ring = (function, arguments)

    def run(self) -> None:
        while not (self._over or self.rings.wait(0.02)):
            pass
        function, arguments = self._ring
        if not self._over:
            function(*arguments)

    def cancel(self) -> None:
        self._over = True


def test_a_time_out_is_infra_and_leaves_no_process(job: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane at work is stopped, those after it are not begun, and what was done before counts."""
    monkeypatch.setattr(threading, "Timer", _Alarm)
    monkeypatch.setattr("agent.runner.supervise._LANE_SHARE", 1.0)
    _Alarm.rings.clear()
    pid: list[int] = []

    def ring(lane: str) -> None:
        pid[:] = children_of_this_thread()
        if lane == "determinism":
            _Alarm.rings.set()

    forever = {**CHAIN, "repeats": 10**6, "threads": [], "micro_batches": [], "max_error": 1.0}
    lanes: tuple[tuple[str, dict[str, Any]], ...] = (("inspect", {}), ("determinism", forever), ("contract", {}))
    outcome = supervise(job("qwen3-dense", *lanes), Log(on_start=ring), 600)
    assert statuses(outcome) == {"inspect": Status.PASS, "determinism": Status.INFRA, "contract": Status.INFRA}
    assert "time-out" in outcome.results[1].summary
    assert "time-out" in outcome.results[2].summary
    assert not Path(f"/proc/{pid[0]}").exists()


def test_a_lane_that_hangs_costs_its_lane_only(job: Jobs) -> None:
    """It is stopped after half of the time of the leg, and the lanes after it have their turn."""
    forever = {**CHAIN, "repeats": 10**6, "threads": [], "micro_batches": [], "max_error": 1.0}
    log = Log()
    outcome = supervise(job("qwen3-dense", ("inspect", {}), ("determinism", forever), ("cache-policy", {})), log, 40)
    assert statuses(outcome) == {"inspect": Status.PASS, "determinism": Status.INFRA, "cache-policy": Status.PASS}
    assert "time-out of the lane" in outcome.results[1].summary
    assert len(log.loads) == 2


def test_a_job_without_lanes_loads_all_the_same(job: Jobs) -> None:
    """So that what is under test is known where no lane is left to run."""
    outcome = supervise(job("qwen3-dense"), Log(), 120)
    assert outcome.results == ()
    assert outcome.loaded.engine["version"]


def test_no_time_at_all_is_infra(job: Jobs) -> None:
    """A leg whose time is up before its child begins has no lane that ran."""
    outcome = supervise(job("qwen3-dense", ("inspect", {})), Log(), 0)
    assert outcome.results[0].status is Status.INFRA
    assert "time-out" in outcome.results[0].summary


def test_the_child_ends_when_its_parent_does(job: Jobs) -> None:
    """The pipe of a parent that was killed closes, and the child does not outlive it."""
    script = (
        "import sys; from agent.runner.job import Job; from agent.runner.supervise import supervise\n"
        "class Tell:\n"
        "    def loaded(self, loaded): pass\n"
        "    def lane_started(self, lane): print(lane, flush=True)\n"
        "    def lane_finished(self, result): pass\n"
        "supervise(Job.from_line(sys.stdin.readline()), Tell(), 600)\n"
    )
    forever = {**CHAIN, "repeats": 10**6, "threads": [], "micro_batches": [], "max_error": 1.0}
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(job("qwen3-dense", ("determinism", forever)).to_line() + "\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "determinism\n"
        (child,) = _children(parent.pid)
        parent.kill()
    wait_for(lambda: not Path(f"/proc/{child}").exists())


def _children(pid: int) -> list[int]:
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in listed.read_text(encoding="ascii").split()]
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something holds; the time-out only ends a test that would never end."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_device_that_is_not_there_makes_all_lanes_infra(job: Jobs, children: list[list[str]]) -> None:
    """B18: the leg is not run on another device, and the message names those that are there."""
    absent = next(name for name in ("cuda", "metal", "vulkan") if name not in {d.backend for d in list_devices()})
    log = Log()
    outcome = supervise(job("qwen3-dense", ("inspect", {}), ("contract", {}), device=absent), log, 120)
    assert list(statuses(outcome).values()) == [Status.INFRA] * 2
    assert all("CPU" in result.summary and absent in result.summary for result in outcome.results)
    assert [result.lane for result in log.finished] == ["inspect", "contract"]
    assert outcome.loaded.nodes_by_device == {}
    assert sum("agent.runner.child" in words for words in children) == 1


def test_a_model_that_llama_cpp_refuses_is_a_fail_with_its_words(
    job: Jobs, twin: Callable[[str], Path], tmp_path: Path
) -> None:
    """A header that reads well is not enough: what llama.cpp says of the file is in the log."""
    data = twin("qwen3-dense").read_bytes()
    broken = tmp_path / "broken.gguf"
    name = b"blk.3.attn_q.weight"
    assert data.count(name) == 1
    broken.write_bytes(data.replace(name, b"blk.3.attn_Q.weight"))
    outcome = supervise(job("qwen3-dense", ("inspect", {}), model=broken), Log(), 120)
    assert outcome.results[0].status is Status.FAIL
    assert "does not load broken.gguf" in outcome.results[0].summary
    assert "blk.3.attn_q.weight" in outcome.log


# lane, parameters -> what becomes of it
UNABLE: tuple[tuple[str, dict[str, Any], Status, str], ...] = (
    ("chain", {}, Status.FAIL, "prompt_tokens is missing"),
    ("no-such-lane", {}, Status.FAIL, "has no lane 'no-such-lane'"),
    ("no-such-fault/inspect", {}, Status.FAIL, "no seeded fault is called 'no-such-fault'"),
    ("single-step", {**CHAIN, "prompt_tokens": "many"}, Status.INFRA, "skippy-agent itself failed"),
    ("boundary-sweep", {**CHAIN, "prompt_tokens": 300, "cuts": "all"}, Status.FAIL, "does not fit into the 256 cells"),
)


def test_a_lane_that_cannot_run_is_never_a_pass(job: Jobs, children: list[list[str]]) -> None:
    """Wrong parameters, unknown names and faults of our own are results of that lane; the next one runs in the same child."""
    lanes = [(lane, params) for lane, params, _, _ in UNABLE]
    outcome = supervise(job("qwen3-dense", *lanes, ("inspect", {})), Log(), 120)
    for result, (lane, _, status, words) in zip(outcome.results, UNABLE, strict=False):
        assert (result.lane, result.status, result.comparisons) == (lane, status, 0)
        assert words in result.summary
        assert result.problems == (result.summary,)
    assert outcome.results[-1].status is Status.PASS
    assert sum("agent.runner.child" in words for words in children) == 1


def test_a_job_survives_its_line(job: Jobs) -> None:
    """What the child reads is what the parent meant."""
    whole = job("lfm2", ("chain", CHAIN), ("inspect", {}))
    again = Job.from_line(whole.to_line())
    assert "\n" not in whole.to_line()
    assert again == whole
    assert Job.from_line(job("lfm2", recorded=None, device=None).to_line()).recorded is None


def test_the_child_has_the_environment_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no debugger at an abort, threads that sleep while they wait, and none of numpy's."""
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", "somewhere")
    environment = child_environment()
    assert environment["LLAMA_CPP_LIB_PATH"] == "somewhere"
    assert environment["GGML_NO_BACKTRACE"] == "1"
    assert environment["OMP_WAIT_POLICY"] == "passive"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "it said nothing"),
        (" \n\n", "it said nothing"),
        ("loading\nfailed to open\n", "failed to open"),
        ("x.cpp:1: GGML_ASSERT(a == b) failed\nmore\nAborted\n", "GGML_ASSERT(a == b) failed"),
        ("GGML_ABORT: one\nGGML_ASSERT(two) failed\ntail", "GGML_ASSERT(two) failed"),
        ("terminate called after throwing 'std::bad_alloc'\n  what():  std::bad_alloc\n", "terminate called after"),
        ("CUDA error\nfatal error: no kernel\nbye", "fatal error: no kernel"),
    ],
)
def test_the_last_words_are_those_that_say_most(log: str, words: str) -> None:
    """A failed assertion wherever it stands, else the last line that says anything."""
    assert last_words(log).startswith(words)
