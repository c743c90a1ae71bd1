"""What the battery says of models beside one another, seen without it: plain llama.cpp, two prompts in a batch or each alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama
import numpy as np
import pytest
from numpy.typing import NDArray

Part = tuple[Sequence[int], int, int]
"""Tokens, the position of the first, their sequence."""

_NEXT = 5  # the token after either prompt: any will do
_LENGTH = 12
_QUIET = llama.llama_log_callback(lambda *_: None)  # kept, since llama.cpp goes on calling it
_SPREAD = 0.1  # of the logits' standard deviation; rounding stays below a thousandth


@contextmanager
def context(model: Any) -> Iterator[Any]:
    """Room for two sequences, in batches of any shape."""
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_seq_max, params.n_batch, params.n_ubatch = 512, 2, 64, 64
    params.n_threads = params.n_threads_batch = 1
    made = llama.llama_init_from_model(model, params)
    try:
        yield made
    finally:
        llama.llama_free(made)


def decode(context: Any, n_vocab: int, *parts: Part) -> NDArray[np.float32]:
    """The logits of the last token of the batch."""
    count = sum(len(tokens) for tokens, _, _ in parts)
    batch = llama.llama_batch_init(count, 0, 1)
    rows = [(token, start + index, sequence) for tokens, start, sequence in parts for index, token in enumerate(tokens)]
    for row, (token, position, sequence) in enumerate(rows):
        batch.token[row], batch.pos[row], batch.n_seq_id[row], batch.logits[row] = token, position, 1, 1
        batch.seq_id[row][0] = sequence
    batch.n_tokens = count
    assert llama.llama_decode(context, batch) == 0
    logits = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, count - 1), (n_vocab,)).copy()
    llama.llama_batch_free(batch)
    return logits


@pytest.mark.parametrize(
    ("architecture", "wrong"),
    [
        ("arwkv7", True),
        ("rwkv6qwen2", True),
        ("plamo2", True),
        *((name, False) for name in ("rwkv6", "rwkv7", "mamba", "mamba2", "jamba", "lfm2", "qwen3")),
    ],
)
def test_a_prompt_beside_another(architecture: str, wrong: bool, twin: Callable[[str], Path]) -> None:
    """The token after a prompt depends on the prompt beside it, or does not."""
    llama.llama_log_set(_QUIET, ctypes.c_void_p(0))
    model = llama.llama_model_load_from_file(str(twin(architecture)).encode(), llama.llama_model_default_params())
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    prompts = np.random.default_rng(1).integers(1, n_vocab, (2, _LENGTH)).tolist()
    alone = []
    with context(model) as single:
        for sequence, prompt in enumerate(prompts):
            decode(single, n_vocab, (prompt, 0, sequence))
            alone.append(decode(single, n_vocab, ([_NEXT], _LENGTH, sequence)))
    with context(model) as both:
        decode(both, n_vocab, (prompts[0], 0, 0), (prompts[1], 0, 1))
        beside = [decode(both, n_vocab, ([_NEXT], _LENGTH, sequence)) for sequence in (0, 1)]
    llama.llama_model_free(model)
    spread = max(float(np.abs(a - b).max() / a.std()) for a, b in zip(alone, beside, strict=True))
    assert (spread > _SPREAD) == wrong, f"{architecture}: {spread:.3g} standard deviations"
