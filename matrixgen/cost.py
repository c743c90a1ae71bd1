"""How long a leg takes: measured where receipts say so, else a model that is written down here.

The model counts tokens. A lane evaluates so many tokens on the whole model, or on stages that add up to one; its seconds are

    tokens x (OVERHEAD + GiB of weights x SECONDS_PER_TOKEN_GIB[backend])

and a leg takes START seconds more. The constants were fitted to receipts of 21 twins and of Gemma 3 270M on two shared CPU
cores; those of the accelerators are estimates until receipts of theirs exist. `matrixgen costs` compares them with receipts.
Mixtures of experts read a part of their weights for each token, so the model overstates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrixgen.battery import LaneSpec

GIB = 2**30
START = 5.0
OVERHEAD = 0.003
SECONDS_PER_TOKEN_GIB = {"cpu": 0.2, "cuda": 0.01, "metal": 0.02}
SLOWEST = max(SECONDS_PER_TOKEN_GIB.values())
CPU_BESIDE_DEVICE = 20  # how many times longer the CPU takes, which an accelerator is compared with
TOPOLOGIES = 4  # one stage, split first, middle and final
CUTS = {"all": 30, "classes": 2, "thirds": 2}  # the true number needs the file's header
CUTS_OF_A_TWIN = {"all": 7, "classes": 3, "thirds": 2}

Timings = Mapping[tuple[str, str, str], float]  # (leg, subject, lane) -> seconds


class Estimate(NamedTuple):
    """Whole seconds of work; `source` is model, measured, or mixed where only some lanes were measured."""

    seconds: int
    source: str


UNKNOWN = Estimate(1, "model")


def _length(params: Mapping[str, Any]) -> int:
    return int(params["prompt_tokens"]) + int(params["decode_steps"])


def _restore(params: Mapping[str, Any]) -> int:
    return int(params["prefix_tokens"]) + int(params["suffix_tokens"]) + 2 * int(params["decode_steps"])


def _determinism(params: Mapping[str, Any]) -> int:
    """Repeats of the whole model, of the second stage (half of it), and one run of each micro-batch and thread count."""
    runs = 1.5 * int(params["repeats"]) + len(params["micro_batches"]) + len(params["threads"])
    return int(runs * _length(params))


def _edges(params: Mapping[str, Any]) -> int:
    """Three prompts, each whole, split, beside the others and taken back; edges of the model's own are not known here."""
    briefly = int(params["micro_batch"]) + int(params["decode_steps"])
    return 12 * briefly + 2 * int(params["long_steps"])


def _conversation(params: Mapping[str, Any]) -> int:
    """Three times all of it: without a cache, at once, and over the cache, where others pass between two turns."""
    later = int(params["turns"]) - 1
    said = int(params["prompt_tokens"]) + later * int(params["turn_tokens"])
    said += int(params["turns"]) * int(params["decode_steps"])
    return 3 * said + later * int(params["others"]) * int(params["turn_tokens"])


def _media(params: Mapping[str, Any]) -> int:
    """Text, a block of vectors, text and greedy steps."""
    text = int(params["prefix_tokens"]) + int(params["suffix_tokens"]) + int(params["decode_steps"])
    return int(params["rows"]) * int(params["columns"]) + text


# The last argument is the number of cuts that `cuts` stands for.
_TOKENS: Mapping[str, Callable[[Mapping[str, Any], int], int]] = {
    "inspect": lambda _params, _cuts: 1,
    "contract": lambda _params, _cuts: 1,
    "cache-policy": lambda _params, _cuts: 1,
    "refuse": lambda _params, _cuts: 1,
    "single-step": lambda params, _cuts: 2 * _length(params),
    "chain": lambda params, _cuts: _length(params),
    "boundary-sweep": lambda params, cuts: cuts * _length(params),
    "dtype-matrix": lambda params, cuts: cuts * len(params["wires"]) * _length(params),
    "state-handoff": lambda params, _cuts: 2 * _restore(params),
    "cache-resident": lambda params, _cuts: TOPOLOGIES * int(params["hit_repeats"]) * _restore(params),
    "cache-recurrent": lambda params, _cuts: TOPOLOGIES * int(params["hit_repeats"]) * _restore(params),
    "concurrent-record": lambda params, _cuts: int(params["rounds"]) * _restore(params),
    "radix-cache": lambda params, _cuts: TOPOLOGIES * int(params["rounds"]) * _restore(params),
    "conversation": lambda params, _cuts: _conversation(params),
    "determinism": lambda params, _cuts: _determinism(params),
    "edges": lambda params, _cuts: _edges(params),
    "package": lambda params, cuts: (2 + cuts) * _length(params),
    "media-prefill": lambda params, cuts: (2 + cuts) * _media(params),
    "backend-parity": lambda params, _cuts: CPU_BESIDE_DEVICE * _length(params),
}
_UNKNOWN = 500  # tokens of a lane that is not in the table, or whose parameters are not those that it should have


def tokens_of(lane: LaneSpec, *, twin: bool) -> int:
    """Tokens that a lane evaluates on a model as a whole, about."""
    cuts = (CUTS_OF_A_TWIN if twin else CUTS).get(str(lane.params.get("cuts")), 1)
    try:
        return _TOKENS[lane.name](lane.params, cuts)
    except (KeyError, TypeError, ValueError):
        return _UNKNOWN


def lane_seconds(lane: LaneSpec, *, size: int, backend: str) -> float:
    """Seconds of one lane by the model. `size` is the bytes of the weights, 0 for a twin."""
    speed = SECONDS_PER_TOKEN_GIB.get(backend, SLOWEST)
    return tokens_of(lane, twin=not size) * (OVERHEAD + size / GIB * speed)


def estimate(
    leg_id: str, lanes: Sequence[LaneSpec], *, subject: str, size: int, backend: str, timings: Timings
) -> Estimate:
    """Seconds of a leg: lanes that were measured count as measured, the others by the model."""
    measured = [timings.get((leg_id, subject, lane.name)) for lane in lanes] if timings else [None] * len(lanes)
    seconds = START + sum(
        lane_seconds(lane, size=size, backend=backend) if known is None else known
        for lane, known in zip(lanes, measured, strict=True)
    )
    found = sum(known is not None for known in measured)
    source = "model" if not found else "measured" if found == len(lanes) else "mixed"
    return Estimate(max(1, round(seconds)), source)
