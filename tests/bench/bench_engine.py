"""What splitting costs in the engine: a run over a cut against a plain forward of the same model, in the same process.

    python tests/bench/bench_engine.py            twins of a few architectures
    python tests/bench/bench_engine.py MODEL.gguf a real model as well

A forward is a prefill of 40 tokens in micro-batches of 16 and 8 greedy steps; one cut is the upper stage of the middle cut
over the same tokens. Medians of `REPEATS` pairs, taken in turn.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agent.commands.folders import twin_folder
from agent.engine.anatomy import Anatomy
from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.engine.session import Session, Shape
from agent.engine.stage import Stage
from agent.engine.transcript import Transcript, transcribe
from agent.lanes.cuts import middle_cut
from agent.lanes.workload import Workload
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for

REPEATS = 7
ARCHITECTURES = ("qwen3", "jamba", "rwkv7", "deepseek2")
WORKLOAD = Workload(segments=(40,), decode_steps=8, micro_batch=16)


def measure(path: Path, threads: int) -> tuple[float, float, float]:
    """Median seconds of a plain forward, of a forward that records the frames of all cuts, and of one cut."""
    with Model(path, choose_device("cpu")) as model:
        anatomy = Anatomy(model, Shape(micro_batch=WORKLOAD.micro_batch, threads=threads))
        contract = anatomy.contract
        prompt = WORKLOAD.prompt(model.facts.n_vocab)

        def forward(cuts: tuple[int, ...]) -> Transcript:
            with Stage(anatomy, Session(model, anatomy.shape), 0, contract.n_layer) as whole:
                return transcribe(whole, prompt, WORKLOAD.decode_steps, cuts=cuts)

        reference, cut = forward(contract.legal_cuts), middle_cut(contract)

        def one_cut() -> None:
            with Stage(anatomy, Session(model, anatomy.shape), cut, contract.n_layer) as stage:
                for turn in reference.turns:
                    stage.decode(turn.tokens, turn.position, 0, turn.frames[cut])

        runs: dict[str, list[float]] = {"plain": [], "recorded": [], "cut": []}
        for _ in range(REPEATS):
            runs["plain"].append(seconds(lambda: forward(())))
            runs["recorded"].append(seconds(lambda: forward(contract.legal_cuts)))
            runs["cut"].append(seconds(one_cut))
        plain, recorded, split = (statistics.median(values) for values in runs.values())
        return plain, recorded, split


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def say(line: str) -> None:
    """Print a line of the table."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(models: list[Path]) -> None:
    """Print the table."""
    say(f"{'model':<24}{'forward s':>11}{'recorded':>10}{'one cut':>10}   (ratios to the forward)")
    paths = [(name, build_twin(recipe_for(name), twin_folder()), 1) for name in ARCHITECTURES]
    for name, path, threads in [*paths, *((path.name, path, 2) for path in models)]:
        plain, recorded, split = measure(path, threads)
        say(f"{name[:23]:<24}{plain:>11.4f}{recorded / plain:>10.2f}{split / plain:>10.2f}")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
