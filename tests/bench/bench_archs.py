"""The whole battery over all architectures against llama.cpp's own `test-llama-archs`, in the same run.

    python tests/bench/bench_archs.py PATH_TO_TEST_LLAMA_ARCHS

That program runs each architecture's tiny model twice, on the CPU and on a device, and once more after a round trip through a
file, and compares one decode. The battery builds a twin, runs it whole and split at every legal cut, and all else that
docs/lanes.md lists. So the ratio is no race: it says what the difference costs. Both run the library of llama-cpp-python, which
the loader finds for their program too; it must be built from the same sources.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import llama_cpp

from agent.twin.catalog import RECIPES
from matrixgen.manifest import load_manifest


def families() -> list[str]:
    """One row of each architecture that has a twin and is not dropped."""
    rows = {row.arch: row.family for row in load_manifest().families if row.tier != 3 and row.arch in RECIPES}
    return sorted(rows.values())


def seconds(command: list[str], *, may_fail: bool = False) -> tuple[float, float]:
    """Wall time and processor time of a command, with the llama.cpp that the engine runs."""
    library = Path(llama_cpp.__file__).parent / "lib"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library)}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in ((0, 1) if may_fail else (0,)):
        raise SystemExit(f"{command[0]} ended with exit code {done.returncode}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Time both and print what each of them did."""
    theirs, their_work = seconds([sys.argv[1]])
    names = families()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from agent.cli import main; main()", "certify", *names, "--twin"]
        ours, our_work = seconds([*command, "--receipts", folder], may_fail=True)
        receipts = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*/receipt.json")]
    lanes = [lane for receipt in receipts for lane in receipt["lanes"]]
    red = sorted(receipt["leg"] for receipt in receipts if receipt["status"] != "pass")
    sys.stdout.write(f"test-llama-archs        {theirs:7.1f} s, {their_work:7.1f} s of processor time\n")
    sys.stdout.write(f"certify, {len(receipts)} families   {ours:7.1f} s, {our_work:7.1f} s of processor time\n")
    sys.stdout.write(f"{ours / theirs:.1f} times as long, {our_work / their_work:.1f} times the processor time\n")
    compared = sum(lane["comparisons"] for lane in lanes)
    sys.stdout.write(f"{len(lanes)} lanes, {compared} comparisons; not green: {', '.join(red) or 'none'}\n")


if __name__ == "__main__":
    main()
