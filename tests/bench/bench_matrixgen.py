"""Times matrixgen: a cold `emit`, and manifests of up to 10,000 families on 4 backends.

Usage: python tests/bench/bench_matrixgen.py [--repeats N] [--families N] [--rounds N]

Cold starts alternate with an empty Python process that imports json; the medians of N pairs count, and what to compare is the
ratio. Each size runs in a process of its own, so that its peak of memory is its own, and N rounds go over all sizes in turn; the
best round of each counts. Time is processor time: on a machine that others use, wall time says more about them. Garbage is not
collected, as in the command. The growth column is the time of this row over the time of the row above, beside what n log n would
give.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
BACKENDS = ("cpu", "cuda", "metal", "vulkan")
STEPS = ("validate", "plan", "matrices", "plan file")
sys.path.insert(0, str(ROOT))


def environment() -> dict[str, str]:
    """With compiled modules, as an installed command has them, and without the files of a workflow."""
    left_out = ("PYTHONDONTWRITEBYTECODE", "GITHUB_OUTPUT")
    return {key: value for key, value in os.environ.items() if key not in left_out}


def seconds_of(command: list[str]) -> tuple[float, float]:
    """(processor time, wall time) of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def cold(repeats: int) -> list[str]:
    """The rows of the table of cold starts."""
    console = Path(sys.executable).with_name("matrixgen")
    start = [str(console)] if console.exists() else [sys.executable, "-m", "matrixgen"]
    base = [sys.executable, "-c", "import json"]
    commands = {
        "python -c 'import json, click'": [sys.executable, "-c", "import json, click"],
        "matrixgen emit --tier 1": [*start, "emit", "--tier", "1"],
        "matrixgen --help": [*start, "--help"],
        "matrixgen validate": [*start, "validate"],
    }
    rows = []
    for name, command in commands.items():
        seconds_of(command)  # compiles
        pairs = [(seconds_of(command), seconds_of(base)) for _ in range(repeats)]
        processor = median(ours[0] / theirs[0] for ours, theirs in pairs)
        wall = median(ours[1] / theirs[1] for ours, theirs in pairs)
        rows.append(f"| `{name}` | {median(ours[0] for ours, _ in pairs):.3f} | {processor:.2f} | {wall:.2f} |")
    return rows


def make_manifest(folder: Path, count: int) -> None:
    """A good manifest of `count` pinned families of tier 1, on four backends."""
    source = ROOT / "manifests"
    for path in source.glob("*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    families = json.loads((source / "families.json").read_text(encoding="utf-8"))["families"]
    base = next(row for row in families if row["family"] == "mamba")
    rows = [json.dumps({**base, "family": f"family-{number:06d}"}) for number in range(count)]
    text = '{"schema_version": 1, "families": [\n' + ",\n".join(rows) + "\n]}\n"
    (folder / "families.json").write_text(text, encoding="utf-8")
    batteries = json.loads((source / "batteries.json").read_text(encoding="utf-8"))
    batteries["events"]["release"]["1"]["backends"] = list(BACKENDS)
    (folder / "batteries.json").write_text(json.dumps(batteries), encoding="utf-8")
    runners = json.loads((source / "runners.json").read_text(encoding="utf-8"))
    cuda = next(entry for entry in runners["runners"] if entry["backend"] == "cuda")
    runners["runners"].append({**cuda, "name": "lab-linux-vulkan", "backend": "vulkan"})
    (folder / "runners.json").write_text(json.dumps(runners), encoding="utf-8")
    caches = json.loads((source / "caches.json").read_text(encoding="utf-8"))
    (folder / "caches.json").write_text(json.dumps({**caches, "largest_set_gb": 0}), encoding="utf-8")


def measure(count: int) -> dict[str, float]:
    """Seconds of processor time of each step and the peak of memory, in this process."""
    from matrixgen.jobs import jobs_of
    from matrixgen.manifest import check_manifest, load_manifest
    from matrixgen.matrix import chunk_matrix
    from matrixgen.plan import build_plan
    from matrixgen.planfile import write_plan

    gc.disable()
    taken: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = step()
        taken[name] = time.process_time() - start
        return result

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_manifest(folder, count)
        timed("validate", lambda: check_manifest(folder))
        manifest = load_manifest(folder)
        plan = timed("plan", lambda: build_plan(manifest, event="release"))
        timed("matrices", lambda: chunk_matrix(plan, jobs_of(plan.legs)))
        taken["legs"] = len(plan.legs)
        taken["MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        timed("plan file", lambda: write_plan(plan, folder / "plan.json"))
        taken["MB with plan file"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return taken


def growth(most: int, rounds: int) -> list[str]:
    """The rows of the table of large manifests."""
    sizes = [most // 8, most // 4, most // 2, most]
    measured: dict[int, list[dict[str, float]]] = {count: [] for count in sizes}
    for _ in range(rounds):
        for count in sizes:
            command = [sys.executable, str(Path(__file__)), "--measure", str(count)]
            done = subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True, text=True)
            measured[count].append(json.loads(done.stdout))
    rows, last = [], 0.0
    for count, runs in measured.items():
        best = {name: min(run[name] for run in runs) for name in runs[0]}
        total = sum(best[name] for name in STEPS)
        allowed = 2 * math.log(count) / math.log(count / 2)
        grown = f"{total / last:.2f} ({allowed:.2f})" if last else "-"
        cells = " | ".join(f"{best[name]:.2f}" for name in STEPS)
        memory = f"{best['MB']:.0f} | {best['MB with plan file']:.0f}"
        rows.append(f"| {count} | {best['legs']:.0f} | {cells} | {grown} | {memory} |")
        last = total
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--families", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.stdout.write(json.dumps(measure(options.measure)))
        return
    lines = ["| cold start | processor s | ratio | wall ratio |", "|---|---|---|---|", *cold(options.repeats), ""]
    lines += [
        "| families | legs | validate s | plan s | matrices s | plan file s | growth (n log n) | peak MB | with plan file |",
        "|---|---|---|---|---|---|---|---|---|",
        *growth(options.families, options.rounds),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
