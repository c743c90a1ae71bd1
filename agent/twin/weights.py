"""Weights of a twin: a pure function of a tensor's name and shape.

Random numbers come from the raw words of a counter-based generator, whose stream is fixed for all versions of numpy, and are
shaped with integers and single multiplications: the same bytes on every machine.

The scales keep a random network alive: a matrix keeps the variance of its input, norms are near one, decays let a state
live for tens of tokens. Whether they do is measured for every recipe (`agent.twin.vitals`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Numbers = NDArray[np.float32 | np.int32]

# Name patterns, the first that fits wins: (pattern, kind, a, b).
#   spread: uniform in [a, b]     near: a + b * normal     matrix: a / sqrt(fan in) * normal
#   ids: whole numbers, column c from [a * c, a * c + a), so that a row has no number twice
_RULES: tuple[tuple[str, str, float, float], ...] = (
    (r"ffn_gate_tid2eid\.weight$", "ids", 4.0, 0.0),  # the experts of each token: four times as many as are used
    (r"ssm_a$", "spread", -2.0, -0.1),  # decay of a state must be negative
    (r"ssm_d$", "near", 1.0, 0.2),
    (r"ssm_dt\.bias$", "spread", -4.0, -0.5),  # inverse softplus of a time step of 0.02 to 0.5
    (r"ssm_conv1d\w*\.weight$", "matrix", 1.5, 0.0),
    (r"(time_mix_ln|norm\w*)\.weight$", "near", 1.0, 0.15),
    (r"norm\w*$", "near", 1.0, 0.15),
    (r"rope_freqs\.weight$", "spread", 1.0, 8.0),
    (r"rope_factors_\w+\.weight$", "spread", 1.0, 4.0),
    (r"(lerp_\w+|channel_mix_lerp_\w+)\.weight$", "spread", 0.1, 0.9),
    (r"time_mix_decay\.weight$", "spread", -5.0, -1.0),  # RWKV6: the decay is exp(-exp(x))
    (r"time_mix_w0\.weight$", "spread", -6.0, -1.0),  # RWKV7: exp(-0.606 * sigmoid(x))
    (r"time_mix_(a0|v0)\.weight$", "spread", -1.0, 1.0),
    (r"time_mix_k_[ka]\.weight$", "near", 0.9, 0.1),
    (r"time_mix_(r_k|first)\.weight$", "near", 0.0, 0.5),
    (r"exp_probs_b(\.bias)?$", "near", 0.0, 0.1),
    (r"\.bias$", "near", 0.0, 0.2),
    (r"attn_sinks(\.weight)?$", "near", 0.0, 1.0),
    (r"\w*scale\w*(\.weight)?$", "near", 1.0, 0.1),
    (r"token_embd\.weight$", "near", 0.0, 1.0),
    (r"^output\.weight$", "matrix", 3.0, 0.0),
    (r"(ffn_gate_inp|attn_q|attn_k|attn_qkv|attn_q_b)\.weight$", "matrix", 1.5, 0.0),
    (r"", "matrix", 1.0, 0.0),
)
_COMPILED = tuple((re.compile(pattern), kind, a, b) for pattern, kind, a, b in _RULES)

# Four uniform 16-bit numbers make one nearly normal one: the variance of their sum is four times (2^16)^2 / 12.
_SUM_MEAN = 4 * (2**16 - 1) // 2
_SUM_STD = math.sqrt(4 * (2**32 - 1) / 12)


def fill(name: str, shape: tuple[int, ...], *, seed: int = 0, gains: Mapping[str, float] | None = None) -> Numbers:
    """The data of one tensor.

    Args:
        name: as llama.cpp calls it, for example ``blk.3.attn_q.weight``.
        shape: in GGML's order, so that ``shape[0]`` is what a matrix multiplies (its fan-in).
        seed: other numbers for the same name.
        gains: factors for names that fit a shell pattern; the first that fits is used.

    Returns:
        float32 array whose shape is the reverse of `shape`; int32 for a table of ids.
    """
    kind, a, b = next((kind, a, b) for pattern, kind, a, b in _COMPILED if pattern.search(name))
    count, key = math.prod(shape), f"{seed}/{name}"
    if kind == "ids":
        return _ids(key, int(a), shape).reshape(shape[::-1])
    if kind == "spread":
        data = np.float32(a) + _uniform(key, count) * np.float32(b - a)
    elif kind == "near":
        data = np.float32(a) + _normal(key, count) * np.float32(b)
    else:
        data = _normal(key, count) * np.float32(a / math.sqrt(shape[0]))
    gain = next((gain for pattern, gain in (gains or {}).items() if fnmatchcase(name, pattern)), None)
    if gain is not None:
        data *= np.float32(gain)
    return data.reshape(shape[::-1])


def _words(key: str, count: int) -> NDArray[np.uint64]:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16])
    words: NDArray[np.uint64] = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(count)
    return words


def _ids(key: str, choices: int, shape: tuple[int, ...]) -> NDArray[np.int32]:
    picked = (_words(key, math.prod(shape)) >> np.uint64(40)) % np.uint64(choices)
    columns = np.arange(math.prod(shape), dtype=np.int64) % shape[0]
    ids: NDArray[np.int32] = (picked.astype(np.int64) + choices * columns).astype(np.int32)
    return ids


def _uniform(key: str, count: int) -> Floats:
    numbers: Floats = (_words(key, count) >> np.uint64(40)).astype(np.float32)
    numbers *= np.float32(2.0**-24)
    return numbers


def _normal(key: str, count: int) -> Floats:
    parts = _words(key, count).astype("<u8", copy=False).view("<u2").reshape(count, 4)
    numbers: Floats = (parts.sum(axis=1, dtype=np.int32) - np.int32(_SUM_MEAN)).astype(np.float32)
    numbers *= np.float32(1.0 / _SUM_STD)
    return numbers
