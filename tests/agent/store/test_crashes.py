"""Processes that are killed, and many on one store."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.digests import sha256_of_file
from agent.store.locks import try_exclusive
from tests.agent.store.conftest import REPO, REVISION, Opener, fetch, leftovers, model_bytes, wanted
from tests.agent.store.hub_server import Hub

DATA = [model_bytes(1_500_000, seed) for seed in range(2)]
FILES = [wanted(data, f"m-0000{index + 1}-of-00002.gguf") for index, data in enumerate(DATA)]
ROOT = Path(__file__).parents[3]

# Imports once, then forks a process for each line that it reads, so that a kill costs no start of an interpreter.
NURSERY = """
import os, signal, sys
from pathlib import Path
import huggingface_hub.file_download, requests
from agent.store.root import open_root
from agent.store.sources.spec import parse_sources
from agent.store.store import Store
from agent.store.wanted import Wanted

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
files = [Wanted(repo=r, revision=v, path=p, size=int(s), sha256=d) for r, v, p, s, d in (a.split("|") for a in sys.argv[3:])]
for _ in sys.stdin:
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    store = Store(root=open_root(Path(sys.argv[1])), sources=parse_sources([sys.argv[2]]), floor=0)
    with store.lend(files) as lent:
        good = all(path.stat().st_size == file.size for file, path in lent.items())
        os.write(1, b"lent\\n" if good else b"bad\\n")
    os._exit(0)
"""


class Nursery:
    """Processes that fetch all files into the store at `root`."""

    def __init__(self, root: Path, hub: Hub) -> None:
        files = [f"{file.repo}|{file.revision}|{file.path}|{file.size}|{file.sha256}" for file in FILES]
        command = [sys.executable, "-c", NURSERY, str(root), f"hub:{hub.address}", *files]
        self._said: list[str] = []
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self) -> int:
        """Fork one; returns its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        while not (line := self._process.stdout.readline().strip()).isdigit():
            self._said.append(line)
        return int(line)

    def close(self) -> None:
        """End it, if it was not waited for."""
        if self._process.poll() is None:
            self._process.communicate(timeout=120)

    def ends(self) -> list[str]:
        """Wait until all have ended; returns what those said that were not killed."""
        out, _ = self._process.communicate(timeout=120)
        return [*self._said, *out.split()]


@pytest.fixture
def nursery(hub: Hub, tmp_path: Path) -> Iterator[Nursery]:
    """One on the store of the test, on a hub that holds the files."""
    for file, data in zip(FILES, DATA, strict=True):
        hub.files[REPO, REVISION, file.path] = data
    made = Nursery(tmp_path / "store", hub)
    try:
        yield made
    finally:
        made.close()


def lives(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_random_points_leave_nothing_bad(hub: Hub, store: Opener, nursery: Nursery, kills: int) -> None:
    """After each SIGKILL: every blob is whole, no lock is held, and the next process goes on; at the end nothing is left over."""
    chance = random.Random(kills)
    opened = store(f"hub:{hub.address}")
    inside = 0
    for number in range(kills):
        hub.rate = chance.choice([4e6, 10e6, 40e6])
        sent, pid = hub.sent, nursery.start()
        if number % 2:
            time.sleep(chance.uniform(0, 0.5))
        else:  # by bytes, so that transfers are met on a slow machine, too
            goal = sent + chance.randrange(1, len(DATA[0]))
            while hub.sent < goal and lives(pid):
                time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):  # it was faster
            os.kill(pid, signal.SIGKILL)
        while lives(pid):
            time.sleep(0.002)
        inside += bool(leftovers(opened))
        for blob in opened.root.blobs():
            assert sha256_of_file(blob) == blob.name
        for file, data in zip(FILES, DATA, strict=True):
            with try_exclusive(opened.root.lock(file.sha256)) as held:
                assert held is not None, "a dead process holds a lock"
            partial = opened.root.partial(file.sha256)
            assert not partial.exists() or data.startswith(partial.read_bytes())
        if chance.random() < 0.5:  # from the beginning, so that every point is met
            for path in [*opened.root.blobs(), *leftovers(opened)]:
                path.unlink()
    assert inside, "no kill met a transfer"
    hub.rate = None
    assert fetch(opened, FILES) == DATA
    assert leftovers(opened) == []
    assert list(opened.root.stamps.glob("*.new")) == []
    assert sorted(path.name for path in opened.root.blobs()) == sorted(file.sha256 for file in FILES)


def test_eight_processes_fetch_each_file_once(hub: Hub, nursery: Nursery) -> None:
    """Eight agents make one store at once: each byte is sent once, and all of them get all files."""
    hub.rate = 3e6
    for _ in range(8):
        nursery.start()
    assert nursery.ends() == ["lent"] * 8
    assert hub.gets() == len(FILES)
    assert hub.sent == sum(map(len, DATA))


def test_the_death_of_the_fetcher_hands_over(hub: Hub, nursery: Nursery) -> None:
    """Those who wait for a process that is killed go on where it stopped."""
    hub.rate = 1e6
    first = nursery.start()
    while hub.sent < 300_000:
        time.sleep(0.01)
    nursery.start()
    time.sleep(0.3)
    os.kill(first, signal.SIGKILL)
    hub.rate = None
    assert nursery.ends() == ["lent"]
    assert hub.sent < 2 * sum(map(len, DATA))
