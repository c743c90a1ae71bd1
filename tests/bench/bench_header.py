"""Times three readers of GGUF headers on the vocabulary files of llama.cpp: ours, llama.cpp's own, gguf-py's.

Usage: python tests/bench/bench_header.py LLAMA_SOURCE [--repeats N] [--gguf-py]

LLAMA_SOURCE is a llama.cpp source tree (its models/ folder holds the files). gguf-py builds every string of every array and
needs more than a minute, so it is run only when asked for. All readers run in this one process, in turn, and the best of N
rounds counts; what to compare are the ratios.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent.header.reader import read_header
from tests.agent.header.ggml_reader import GgmlReader, library_path


def best(read: Callable[[Path], object], paths: list[Path], repeats: int) -> float:
    """Return the shortest time in seconds that reading all files took."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for path in paths:
            read(path)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gguf-py", action="store_true")
    options = parser.parse_args()
    paths = sorted(options.source.glob("models/ggml-vocab-*.gguf"))
    library = library_path()
    if not paths or library is None:
        sys.exit("no models/ggml-vocab-*.gguf in that folder" if library else "llama-cpp-python is not installed")
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    rows = [
        ("llama.cpp (gguf_init_from_file)", best(GgmlReader(library).open_file, paths, options.repeats)),
        ("agent.header", best(read_header, paths, options.repeats)),
    ]
    if options.gguf_py:
        from gguf import GGUFReader

        rows.append(("gguf.GGUFReader", best(GGUFReader, paths, 1)))
    base = rows[0][1]
    sys.stdout.write(f"{len(paths)} files, {megabytes:.0f} MB\n\n| reader | seconds | ratio |\n|---|---|---|\n")
    sys.stdout.writelines(f"| {name} | {seconds:.2f} | {seconds / base:.1f} |\n" for name, seconds in rows)


if __name__ == "__main__":
    main()
