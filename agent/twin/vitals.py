"""Vital signs of a twin: is it a model on which a fault would be seen? Runs as a child: ``python -m agent.twin.vitals FILE``.

A random network can be dead in many ways: logits that are not finite, one token for ever, a layer that adds nothing, a state
that is forgotten at once. On such a twin every split looks right. So each recipe is measured: every layer, every tensor of the
cache, the first token and the positions must change the logits, well above the noise of floating point.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]

PROMPT_TOKENS = 40
PREFIX_TOKENS = 24
MICRO_BATCH = 16
DECODE_STEPS = 8
_NEXT = 5  # the token that follows the prefix: any will do

_LAYER = re.compile(r"^blk\.(\d+)\.")
_BOUNDARY = re.compile(r"^(\w*out\w*)-\d+$")
# deepseek4 has names of its own; kimi-linear and plamo2 rename the tensors of their recurrent state when they build a graph
_CACHE = re.compile(
    r"^(?:cache_|dsv4_\w+_state_\w+_l\d+$|(?:conv_states_all|mamba_conv1d_state|mamba_ssm_states)-\d+$)"
)
_NEVER = -1e38  # a logit below is one that the graph forbids: chameleon sets those of images to the least number
_F32 = 0
_OP_NONE = 0
_POSITIONS = "inp_pos"


class _Tensor(ctypes.Structure):
    """`struct ggml_tensor` of ggml.h, up to the name."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
    )


@dataclass(frozen=True, kw_only=True)
class Vitals:
    """What was measured. A sensitivity is the change's root mean square over the logits' standard deviation.

    Attributes:
        finite: no NaN and no infinity in any logit.
        std: smallest and largest standard deviation of a position's logits.
        tokens: the greedy tokens of `DECODE_STEPS` steps.
        margin: smallest distance of the first logit to the second over those steps, in standard deviations.
        repeats: the same logits, bit for bit, when the same is done again.
        threads: the same logits, bit for bit, over 1 to 4 threads.
        boundary: largest absolute value of what a layer hands to the next.
        layers: sensitivity of each block of weights to them being larger by a twentieth.
        caches: sensitivity of each tensor of the cache to being zeroed before the next token (of the next ones, the largest).
        restored: the next token's logits after export and import of the state are those without.
        first_token: sensitivity of the last logits of the prompt to another first token.
        position: sensitivity of the next token's logits to a position that is one too large (0 where none is read).
        positional: the graph reads positions.
        tensors: sensitivity of each weight to being negated (empty unless asked for).
    """

    finite: bool
    std: tuple[float, float]
    tokens: tuple[int, ...]
    margin: float
    repeats: bool
    threads: bool
    boundary: float
    layers: Mapping[str, float]
    caches: Mapping[str, float]
    restored: bool
    first_token: float
    position: float
    positional: bool
    tensors: Mapping[str, float]


class _Bench:
    """A loaded model whose weights and caches can be written."""

    def __init__(self, path: Path) -> None:
        from llama_cpp import llama_cpp as llama

        self.llama: Any = llama
        self.ggml: Any = llama._lib  # noqa: SLF001 - the functions of ggml are not declared by the binding
        self.ggml.ggml_nbytes.restype, self.ggml.ggml_nbytes.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
        for name in ("ggml_backend_tensor_get", "ggml_backend_tensor_set"):
            function = getattr(self.ggml, name)
            function.restype = None
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        self._log = llama.llama_log_callback(self._write_log)
        llama.llama_log_set(self._log, ctypes.c_void_p(0))
        llama.llama_backend_init()
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        params.load_mode = 0  # LLAMA_LOAD_MODE_NONE: the weights are copied, so they can be changed
        params.use_extra_bufts = False
        self.model = llama.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.layers = llama.llama_model_n_layer(self.model)

    @staticmethod
    def _write_log(level: int, text: bytes, _user_data: object) -> None:
        if level == 4:  # GGML_LOG_LEVEL_ERROR
            sys.stderr.write(text.decode(errors="replace"))

    def read(self, tensor: int) -> NDArray[np.uint8]:
        data = np.empty(self.ggml.ggml_nbytes(tensor), np.uint8)
        self.ggml.ggml_backend_tensor_get(tensor, data.ctypes.data, 0, data.nbytes)
        return data

    def write(self, tensor: int, data: NDArray[Any]) -> None:
        self.ggml.ggml_backend_tensor_set(tensor, data.ctypes.data, 0, data.nbytes)


class _Run:
    """One context; `watch` sees every node of the graph, computed or not."""

    def __init__(self, bench: _Bench, *, threads: int = 1, watch: Callable[[int, bool], bool] | None = None) -> None:
        self.bench, self.llama = bench, bench.llama
        params = self.llama.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = 256, 256, MICRO_BATCH
        params.n_threads = params.n_threads_batch = threads
        if watch is not None:
            self._callback = self.llama.ggml_backend_sched_eval_callback(lambda tensor, ask, _: watch(tensor, ask))
            params.cb_eval = self._callback
        self.context = self.llama.llama_init_from_model(bench.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp made no context")

    def decode(self, tokens: Sequence[int], position: int) -> Logits:
        """Logits of all given tokens, ``[tokens, vocabulary]``."""
        batch = self.llama.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index], batch.pos[index] = int(token), position + index
            batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, 1
        status = self.llama.llama_decode(self.context, batch)
        self.llama.llama_batch_free(batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        rows = [self.llama.llama_get_logits_ith(self.context, index) for index in range(len(tokens))]
        return np.array([np.ctypeslib.as_array(row, (self.bench.vocabulary,)) for row in rows], np.float32)

    def state(self) -> ctypes.Array[ctypes.c_uint8]:
        size = self.llama.llama_state_seq_get_size(self.context, 0)
        buffer: ctypes.Array[ctypes.c_uint8] = (ctypes.c_uint8 * size)()
        if self.llama.llama_state_seq_get_data(self.context, buffer, size, 0) != size:
            raise RuntimeError("the state was not exported in full")
        return buffer

    def restore(self, state: ctypes.Array[ctypes.c_uint8]) -> None:
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), True)
        if self.llama.llama_state_seq_set_data(self.context, state, len(state), 0) != len(state):
            raise RuntimeError("the state was not imported in full")

    def close(self) -> None:
        self.llama.llama_free(self.context)


@dataclass
class _Seen:
    """What the graph reads, by name, and the largest value of each kind of output."""

    weights: dict[str, int]
    caches: dict[str, int]
    inputs: dict[str, int]
    outputs: dict[str, float]

    @property
    def boundary(self) -> float:
        """The largest value that a layer hands on: of `l_out` where nodes have that name, else of all outputs."""
        return self.outputs.get("l_out", max(self.outputs.values(), default=0.0))


def _change(one: Logits, other: Logits) -> float:
    allowed = one > _NEVER
    one, other = one[allowed], other[allowed]
    scale = float(np.std(one))
    return float(np.sqrt(np.mean((one.astype(np.float64) - other) ** 2)) / scale) if scale > 0 else 0.0


def _prompt(bench: _Bench, count: int, seed: int = 20260507) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(1, bench.vocabulary, count)]


def _greedy(run: _Run, prompt: list[int]) -> tuple[Logits, list[int]]:
    rows, tokens = [run.decode(prompt, 0)], []
    for step in range(DECODE_STEPS):
        tokens.append(int(np.nan_to_num(rows[-1][-1]).argmax()))
        rows.append(run.decode([tokens[-1]], len(prompt) + step))
    return np.concatenate(rows), tokens


def _look(bench: _Bench) -> _Seen:
    """Runs the prompt once, with a look at every node."""
    seen = _Seen({}, {}, {}, {})
    width = bench.llama.llama_model_n_embd(bench.model)

    def watch(address: int, ask: bool) -> bool:
        node = _Tensor.from_address(address)
        name = node.name.decode(errors="replace")
        if ask:
            for source in filter(None, node.src):
                _note_leaf(int(source), seen)
            return bool(_BOUNDARY.match(name)) and node.type == _F32 and node.ne[0] % width == 0
        kind = name.rpartition("-")[0]
        largest = float(np.abs(bench.read(address).view(np.float32)).max())
        seen.outputs[kind] = max(seen.outputs.get(kind, 0.0), largest)
        return True

    run = _Run(bench, watch=watch)
    run.decode(_prompt(bench, PROMPT_TOKENS), 0)
    run.close()
    return seen


def _note_leaf(address: int, seen: _Seen) -> None:
    tensor = _Tensor.from_address(address)
    while tensor.view_src:
        address = int(tensor.view_src)
        tensor = _Tensor.from_address(address)
    name = tensor.name.decode(errors="replace")
    if 0 in tensor.ne:  # minimax-01 keeps no state of a convolution, but has a tensor for it
        return
    if _CACHE.match(name):
        if address not in seen.caches.values():  # an indexer's cache may have the name of the main one
            seen.caches[name if name not in seen.caches else f"{name}#{len(seen.caches)}"] = address
    elif tensor.op == _OP_NONE and tensor.type == _F32 and (_LAYER.match(name) or name.endswith((".weight", ".bias"))):
        seen.weights[name] = address
    elif name == _POSITIONS:
        seen.inputs[name] = address


def _perturbed(bench: _Bench, weights: Sequence[int], factor: float, prompt: list[int]) -> Logits:
    saved = [(tensor, bench.read(tensor)) for tensor in weights]
    for tensor, data in saved:
        bench.write(tensor, data.view(np.float32) * np.float32(factor))
    run = _Run(bench)
    logits = run.decode(prompt, 0)
    run.close()
    for tensor, data in saved:
        bench.write(tensor, data)
    return logits


def _layer_signs(bench: _Bench, seen: _Seen, prompt: list[int], reference: Logits) -> dict[str, float]:
    signs = {}
    for layer in range(bench.layers):
        weights = [
            tensor for name, tensor in seen.weights.items() if (found := _LAYER.match(name)) and int(found[1]) == layer
        ]
        if weights:  # a block that runs more than once is one layer of weights
            signs[str(layer)] = _change(reference, _perturbed(bench, weights, 1.05, prompt))
    return signs


@dataclass(frozen=True)
class _StateSigns:
    caches: dict[str, float]
    restored: bool
    position: float


def _state_signs(bench: _Bench, prefix: int, following: int) -> _StateSigns:
    """What the next tokens' logits owe to each tensor of the cache and to the position, after a prefix."""
    then = [_NEXT, *_prompt(bench, following - 1)]
    seen = _Seen({}, {}, {}, {})
    shift = 0

    def watch(address: int, ask: bool) -> bool:
        nonlocal shift
        if ask:
            for source in filter(None, _Tensor.from_address(address).src):
                _note_leaf(int(source), seen)
            if shift and _POSITIONS in seen.inputs:
                positions = bench.read(seen.inputs[_POSITIONS]).view(np.int32)
                bench.write(seen.inputs[_POSITIONS], positions + np.int32(shift))
                shift = 0
        return False

    run = _Run(bench, watch=watch)
    run.decode(_prompt(bench, prefix), 0)
    state = run.state()
    straight = run.decode(then, prefix)
    run.restore(state)
    base = run.decode(then, prefix)
    caches = {}
    for name, tensor in sorted(seen.caches.items()):
        run.restore(state)
        bench.write(tensor, np.zeros(bench.ggml.ggml_nbytes(tensor), np.uint8))
        zeroed = run.decode(then, prefix)
        caches[name] = max(_change(one, other) for one, other in zip(base, zeroed, strict=True))
    run.restore(state)
    seen.inputs.clear()
    shift = 1
    position = _change(base, run.decode(then, prefix))
    run.close()
    return _StateSigns(caches, bool(np.array_equal(straight, base)), position)


def measure(path: Path, *, tensors: bool = False, prefix: int = PREFIX_TOKENS, following: int = 1) -> Vitals:
    """Measures a twin's file.

    Args:
        path: a GGUF with float32 weights, small: some hundred forwards are made.
        tensors: measure every weight too (slow).
        prefix: tokens after which the caches are looked at.
        following: tokens after the prefix whose logits show what the caches are worth; both together at most 256.

    Raises:
        RuntimeError: llama.cpp refuses the file or an operation.
    """
    bench = _Bench(path)
    prompt = _prompt(bench, PROMPT_TOKENS)
    runs = []
    for threads in (2, 2, 1, 3, 4):
        run = _Run(bench, threads=threads)
        runs.append(_greedy(run, prompt))
        run.close()
    logits, greedy = runs[0]
    spoken = logits[:, logits[0] > _NEVER]
    steps = np.sort(spoken[PROMPT_TOKENS - 1 : -1], axis=1)
    deviations = spoken.std(axis=1)
    seen = _look(bench)
    reference = logits[:PROMPT_TOKENS]
    other = _Run(bench)
    changed = other.decode([prompt[0] % (bench.vocabulary - 2) + 1, *prompt[1:]], 0)
    other.close()
    state = _state_signs(bench, prefix, following)
    return Vitals(
        finite=bool(np.isfinite(logits).all()),
        std=(float(deviations.min()), float(deviations.max())),
        tokens=tuple(greedy),
        margin=float(((steps[:, -1] - steps[:, -2]) / deviations[PROMPT_TOKENS - 1 : -1]).min()),
        repeats=np.array_equal(logits, runs[1][0]),
        threads=all(np.array_equal(logits, again) for again, _ in runs[2:]),
        boundary=seen.boundary,
        layers=_layer_signs(bench, seen, prompt, reference),
        caches=state.caches,
        restored=state.restored,
        first_token=_change(reference[-1], changed[-1]),
        position=state.position,
        positional=_POSITIONS in seen.inputs,
        tensors={
            name: _change(reference, _perturbed(bench, [tensor], -1.0, prompt))
            for name, tensor in sorted(seen.weights.items())
        }
        if tensors
        else {},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the vital signs of a file as JSON."""
    parser = argparse.ArgumentParser(description="Vital signs of a twin, as JSON.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--tensors", action="store_true", help="measure every weight too (slow)")
    parser.add_argument("--prefix", type=int, default=PREFIX_TOKENS, help="tokens before the caches are looked at")
    parser.add_argument("--following", type=int, default=1, help="tokens that show what the caches are worth")
    chosen = parser.parse_args(arguments)
    try:
        vitals = measure(chosen.file, tensors=chosen.tensors, prefix=chosen.prefix, following=chosen.following)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(asdict(vitals)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
