"""Times the store against curl and sha256sum on the loopback: what to compare are the ratios.

Usage: python tests/bench/bench_store.py [--megabytes 512] [--repeats 5] [--folder DIR]

A server of this machine, in a process of its own, sends a file of random bytes. Each round runs in turn: curl to a file;
sha256sum of it; the store (download, hash, fsync, rename, link); the store again with all in it; and the store's hash of a file
that is in the page cache. Ratios are made within a round, since the speed of a shared machine moves between them.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent.store.root import open_root
from agent.store.sources.spec import parse_sources
from agent.store.stamps import Stamps
from agent.store.store import Store
from agent.store.wanted import Wanted
from tests.agent.store.hub_server import Hub, serve

REPO, REVISION, NAME = "acme/model-GGUF", "a" * 40, "model.gguf"


def make(path: Path, megabytes: int) -> None:
    """Write a file that begins like a GGUF."""
    chance = random.Random(0)
    with path.open("wb") as file:
        file.write(b"GGUF\x03\x00\x00\x00" + chance.randbytes(2**20 - 8))
        for _ in range(megabytes - 1):
            file.write(chance.randbytes(2**20))


def serve_file(path: str, pipe: multiprocessing.connection.Connection) -> None:
    """Run a hub until the other end says enough."""
    with serve(Hub(files={(REPO, REVISION, NAME): Path(path).read_bytes()})) as hub:
        pipe.send(hub.address)
        pipe.recv()


def seconds_of(call: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; on the disk that is to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        measure(Path(name), options.megabytes, options.repeats)


def measure(folder: Path, megabytes: int, repeats: int) -> None:
    """All rows."""
    path, copy = folder / "served", folder / "copy"
    make(path, megabytes)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    wanted = Wanted(repo=REPO, revision=REVISION, path=NAME, size=path.stat().st_size, sha256=digest)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve_file, args=(str(path), there))
    server.start()
    address = here.recv()

    def run_curl() -> None:
        subprocess.run(["curl", "-sSf", "-o", copy, f"{address}/{REPO}/resolve/{REVISION}/{NAME}"], check=True)

    def run_sha256sum() -> None:
        subprocess.run(["sha256sum", copy], check=True, stdout=subprocess.DEVNULL)

    def fetch() -> None:
        store = Store(root=open_root(folder / "store"), sources=parse_sources([f"hub:{address}"]), floor=0)
        with store.lend([wanted]):
            pass

    def empty() -> None:
        shutil.rmtree(folder / "store", ignore_errors=True)
        os.sync()

    fetch()  # so that nothing is imported while it is measured
    rounds = []
    for _ in range(repeats):
        empty()
        seconds = {"curl": seconds_of(run_curl), "sha256sum": seconds_of(run_sha256sum)}
        seconds["store, empty: download, hash, fsync"] = seconds_of(fetch)
        seconds["store, all there"] = seconds_of(fetch)
        seconds["store's hash of a cached file"] = seconds_of(lambda: Stamps(None).sha256_of(copy))
        rounds.append(seconds)
    here.send("enough")
    server.join()
    sys.stdout.write(f"{megabytes} MiB, medians of {repeats} rounds; ratios are of one round each\n\n")
    sys.stdout.write("| what | seconds | / (curl + sha256sum) | / sha256sum |\n|---|---|---|---|\n")
    for what in rounds[0]:
        values = [
            statistics.median(column)
            for column in zip(
                *((r[what], r[what] / (r["curl"] + r["sha256sum"]), r[what] / r["sha256sum"]) for r in rounds),
                strict=True,
            )
        ]
        sys.stdout.write(f"| {what} | {values[0]:.3f} | {values[1]:.3f} | {values[2]:.3f} |\n")


if __name__ == "__main__":
    main()
