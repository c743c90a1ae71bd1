"""A tested program has its own logs and its own environment, and leaves nothing behind; others are never touched."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.prebuilt.ports import free_ports, is_taken, listens
from agent.prebuilt.processes import Ended, Program, environment_for, run_program
from agent.prebuilt.stages import stage_ends, write_shim
from tests.agent.conftest import ROOT

# leaves its group, its session and its parent, and writes its number
_ESCAPE = 'setsid sh -c \'echo $$ > "$0"; exec sleep 60\' "$1" >/dev/null 2>&1 &'


def run(tmp_path: Path, body: str) -> Ended:
    """Run a shell script."""
    argv: list[str | Path] = ["/bin/sh", "-c", body, "sh", tmp_path / "pid"]
    return run_program(argv, tmp_path / "log", environment_for("cpu", tmp_path), 60)


def gone(pid: int) -> bool:
    """True if a process does not run any more; who adopts it may not have buried it yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def wait_for(path: Path) -> int:
    """The number in a file, once it is there."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text(encoding="ascii").strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(path.read_text(encoding="ascii"))


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any test."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def test_what_a_program_wrote_stays(tmp_path: Path) -> None:
    """Both streams have a file each, and the line that says most is picked out."""
    ended = run(tmp_path, "echo report; echo 'GGML_ASSERT(n < max) failed' >&2; echo bye >&2; exit 3")
    assert (ended.code, ended.timed_out, ended.left, ended.words) == (3, False, (), "GGML_ASSERT(n < max) failed")
    assert (tmp_path / "log.out").read_text(encoding="utf-8") == "report\n"
    assert (tmp_path / "log.err").read_text(encoding="utf-8").endswith("bye\n")


def test_a_signal_is_told(tmp_path: Path) -> None:
    """Death by a signal is the negative number of it."""
    assert run(tmp_path, "kill -SEGV $$").code == -signal.SIGSEGV


def test_a_program_that_hangs_is_killed_with_all_its_children(
    tmp_path: Path, neighbour: subprocess.Popen[bytes]
) -> None:
    """Also a grandchild in another session ends; a neighbour does not."""
    argv: list[str | Path] = ["/bin/sh", "-c", f"{_ESCAPE} sleep 60", "sh", tmp_path / "pid"]
    with Program(argv, tmp_path / "log", environment_for("cpu", tmp_path)) as program:
        escaped = wait_for(tmp_path / "pid")
        ended = program.wait(0.1)
    assert ended.timed_out
    assert ended.stuck == ()
    assert gone(escaped)
    assert neighbour.poll() is None


def test_processes_that_outlive_their_program_are_found_and_killed(
    tmp_path: Path, neighbour: subprocess.Popen[bytes]
) -> None:
    """Exit code 0 does not hide a process that was left behind."""
    ended = run(tmp_path, f'{_ESCAPE} while ! test -s "$1"; do sleep 0.01; done')
    (left,) = ended.left
    assert ended.code == 0
    assert left == wait_for(tmp_path / "pid")
    assert gone(left)
    assert neighbour.poll() is None


def test_the_environment_holds_no_secret_and_no_setting_of_the_product(tmp_path: Path) -> None:
    """What would change the test, or is not the program's business, is left out; temporary files have their own place."""
    base = {
        "PATH": "/bin",
        "HF_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "SKIPPY_KV_CACHE": "off",
        "LLAMA_ARG_SEED": "1",
    }
    found = environment_for("cpu", tmp_path, base)
    assert not {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "SKIPPY_KV_CACHE", "LLAMA_ARG_SEED"} & found.keys()
    assert (found["PATH"], found["TMPDIR"], found["CUDA_VISIBLE_DEVICES"]) == ("/bin", str(tmp_path), "-1")
    assert "CUDA_VISIBLE_DEVICES" not in environment_for("cuda", tmp_path, base)


def test_ports_are_free_and_different() -> None:
    """All ports differ; a port on which somebody listens is taken, also by its owner's account."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not any(map(is_taken, ports))
    with socket.create_server(("127.0.0.1", ports[0])):
        assert is_taken(ports[0])
        assert listens([os.getpid()], ports[0])
        assert not listens([1, 2**22], ports[0])
    assert not listens([os.getpid()], ports[0])


def test_ports_are_none_that_outgoing_connections_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection of another program takes any port of the system's own range, at any time."""
    assert all(port < 32768 for port in free_ports(200))
    monkeypatch.setattr("agent.prebuilt.ports._RANGE", range(20000, 20005))
    with pytest.raises(OSError, match="no 6 free ports"):
        free_ports(6)


def test_a_program_dies_with_an_agent_that_is_killed(tmp_path: Path) -> None:
    """Not even SIGKILL of the agent leaves a server behind, nor a stage server behind its shim."""
    server = tmp_path / "server"
    server.write_text(f'#!/bin/sh\necho $$ > "{tmp_path}/pid"; exec sleep 60\n', encoding="utf-8")
    server.chmod(0o755)
    code = (
        "import sys, time; from pathlib import Path; from agent.prebuilt.processes import Program, environment_for;"
        "folder = Path(sys.argv[1]);"
        "Program(['sh', '-c', '\"$0\" & wait', sys.argv[2]], folder / 'log', environment_for('cpu', folder)).start();"
        "time.sleep(60)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path), str(write_shim(server, tmp_path))]
    with subprocess.Popen(argv, cwd=ROOT) as agent:
        process = wait_for(tmp_path / "pid")
        agent.kill()
    deadline = time.monotonic() + 60
    while not gone(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(process)


@contextlib.contextmanager
def shimmed(tmp_path: Path, body: str) -> Iterator[Program]:
    """A shell script behind the shim, running."""
    server = tmp_path / "server"
    server.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    server.chmod(0o755)
    with Program([write_shim(server, tmp_path), "a b"], tmp_path / "log", environment_for("cpu", tmp_path)) as program:
        yield program


@pytest.mark.parametrize(
    ("body", "code"), [("exit 7", 7), ("kill -SEGV $$", -signal.SIGSEGV), ("kill -KILL $$", -signal.SIGKILL)]
)
def test_the_shim_tells_how_a_stage_ended(body: str, code: int, tmp_path: Path) -> None:
    """Exit code and signal pass through it, and are written down with the log."""
    with shimmed(tmp_path, f'echo "got $1"; {body}') as program:
        assert program.wait(20).code == code
    (end,) = stage_ends(tmp_path)
    assert (end.code, end.words) == (code, "got a b")


def test_a_stage_dies_with_its_shim(tmp_path: Path) -> None:
    """A parent kills only the shim; the server may not stay, and a stage that was stopped so is no stage that ended."""
    with shimmed(tmp_path, f'echo $$ > "{tmp_path}/pid"; exec sleep 60') as program:
        server = wait_for(tmp_path / "pid")
        assert len(program.processes()) == 3  # the script, its recorder and the server
        os.kill(program.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while not gone(server) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert gone(server)
    assert stage_ends(tmp_path) == ()
