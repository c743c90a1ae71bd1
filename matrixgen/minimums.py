"""The least number of comparisons that make a pass of a lane count, from the parameters that the plan gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Count = Callable[[Mapping[str, Any]], int]


def _positions(params: Mapping[str, Any]) -> int:
    """Every position of the prompt and every decode step."""
    return int(params["prompt_tokens"]) + int(params["decode_steps"])


def _restored(params: Mapping[str, Any]) -> int:
    """One topology: its end, then greedy steps; its end, then the suffix and greedy steps."""
    return 2 + 2 * int(params["decode_steps"]) + int(params["suffix_tokens"])


def _hits(params: Mapping[str, Any]) -> int:
    return _restored(params) * int(params["hit_repeats"])


def _determinism(params: Mapping[str, Any]) -> int:
    """Repeats of the whole model after the first, of the second stage, and one run of each other micro-batch."""
    return _positions(params) * (2 * int(params["repeats"]) - 1 + len(params["micro_batches"]))


def _recorded(params: Mapping[str, Any]) -> int:
    """Each of four slots records in every round and decodes the suffix after it."""
    return 4 * int(params["rounds"]) * (1 + int(params["suffix_tokens"]))


def _played(params: Mapping[str, Any]) -> int:
    """In every round: the cold prefix and suffix, then two branches off it."""
    return int(params["rounds"]) * (
        int(params["prefix_tokens"]) + 2 * int(params["suffix_tokens"]) + 2 * int(params["decode_steps"])
    )


def _conversed(params: Mapping[str, Any]) -> int:
    """Every position twice, as without a cache and against one prefill; then what passes between two turns."""
    later = int(params["turns"]) - 1
    asked = int(params["prompt_tokens"]) + later * int(params["turn_tokens"])
    said = asked + int(params["turns"]) * int(params["decode_steps"])
    return 2 * said + later * int(params["others"]) * int(params["turn_tokens"])


def _block(params: Mapping[str, Any]) -> int:
    """Text, block, text and greedy steps: the whole model again, one cut by itself, and one chain of live stages."""
    vectors = int(params["rows"]) * int(params["columns"])
    text = int(params["prefix_tokens"]) + int(params["suffix_tokens"]) + int(params["decode_steps"])
    return 3 * (vectors + text)


def _edges(params: Mapping[str, Any]) -> int:
    """Three prompts of about a micro-batch, alone, side by side, and against one another; one of them goes on for long."""
    return 9 * int(params["micro_batch"]) + 6 * int(params["decode_steps"]) + int(params["long_steps"])


_LEAST: Mapping[str, Count] = {
    "single-step": _positions,
    "chain": _positions,
    "boundary-sweep": _positions,
    "dtype-matrix": lambda params: _positions(params) * len(params["wires"]),
    "state-handoff": _restored,
    "cache-resident": _hits,
    "cache-recurrent": _hits,
    "concurrent-record": _recorded,
    "radix-cache": _played,
    "conversation": _conversed,
    "determinism": _determinism,
    "edges": _edges,
    "package": _positions,
    "media-prefill": _block,
    "backend-parity": _positions,
}


def least_comparisons(lane: str, params: Mapping[str, Any]) -> int:
    """A lower bound, never below 1, for a model that has one legal cut: how many there are is known to the agent only.

    A lane of which nothing more is known, or whose parameters are not those that it should have, owes one comparison.
    """
    count = _LEAST.get(lane)
    try:
        return max(1, count(params)) if count else 1
    except (KeyError, TypeError, ValueError):
        return 1
