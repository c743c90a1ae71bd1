"""Child process: mutates headers, gives them to both readers, prints the contradictions as JSON.

Usage: python differential.py LIBRARY SEED COUNT

A child, since a fault in native code must be a result and not the end of the tests.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

from agent.errors import HeaderError
from agent.header.ggml_types import BLOCK
from agent.header.model import Header
from tests.agent.header.compare import STRICTER, differences
from tests.agent.header.ggml_reader import GgmlReader
from tests.agent.header.kit import mutate, read, samples


def main(library: str, seed: int, count: int) -> None:
    """Print counts of the outcomes and every contradiction."""
    ggml, rng, seeds = GgmlReader(Path(library)), random.Random(seed), samples()
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    last = os.open("last.gguf", os.O_WRONLY | os.O_CREAT)
    for _ in range(count):
        data = mutate(rng.choice(seeds), rng)
        # what comes next may end the process in native code: leave its input behind
        os.pwrite(last, data, 0)
        os.ftruncate(last, len(data))
        seen = ggml.read_bytes(data)
        try:
            header = read(data)
        except HeaderError as error:
            outcomes["refused by both" if seen is None else f"refused by us: {error.verdict}"] += 1
            if seen is not None and error.verdict not in STRICTER:
                wrong.append(f"{error} - but llama.cpp accepts {data.hex()}")
            continue
        if seen is None:
            outcomes["opaque" if not _plain(header) else "refused by llama.cpp alone"] += 1
            if _plain(header):
                wrong.append(f"llama.cpp refuses what we accept: {data.hex()}")
        else:
            outcomes["accepted by both"] += 1
            wrong += [f"{line} in {data.hex()}" for line in differences(header, seen)]
    json.dump({"outcomes": outcomes, "wrong": wrong[:10]}, sys.stdout)


def _plain(header: Header) -> bool:
    """Say whether llama.cpp should accept it: known types, and data without gaps, which its reader does not allow."""
    end = 0
    for tensor in header.tensors:
        if tensor.type not in BLOCK or tensor.n_bytes is None or tensor.offset != end:
            return False
        end += -(-tensor.n_bytes // header.alignment) * header.alignment
    return True


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
