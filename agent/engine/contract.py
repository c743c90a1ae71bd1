"""The contract of a model: what must cross each cut, where state lives, and which cuts are illegal; all read off the graph.

The frontier of cut k is every computed tensor of the layers below k that the layers from k on read. A cut is illegal if
they read a cache of a layer below (KV sharing): state cannot cross at each step.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from agent.engine.dataflow import BEFORE_LAYERS, Columns, Dataflow, analyse
from agent.engine.graph import StepGraphs, Tensor
from agent.layer_kind import LayerKind

_UNNAMED = re.compile(r"^(?:node|leaf)_\d+")

_GIVEN = "inp_embd"

# kinds of llama.cpp's cache tensors; what is in neither set is an unknown state and disables reuse
_ATTENTION_CACHES = frozenset({"k", "v", "idx_k", "idx_v", "k_idx"})
_RECURRENT_CACHES = frozenset(
    {"r", "s", "ple_r"}
    | {f"{compressor}_state_{part}" for compressor in ("csa", "hca", "lid") for part in ("kv", "score")}  # deepseek4
)


@dataclass(frozen=True)
class Crossing:
    """One tensor that crosses a cut.

    Attributes:
        label: its name, or operation and layer where llama.cpp gave it none.
        layer: the layer that makes it.
        dtype: ggml type.
        width: elements a token.
    """

    label: str
    layer: int
    dtype: str
    width: int

    @property
    def of_input(self) -> bool:
        """True for a part of the embeddings that the host gives, which no layer makes."""
        return self.label.startswith(f"{_GIVEN}[")


@dataclass(frozen=True)
class Cut:
    """The contract of one cut.

    Attributes:
        layer: k; stage 1 is [0, k), stage 2 is [k, n).
        frontier: what crosses it.
        tokens: stage 2 reads the token ids as well.
        forbidden_by: caches of stage 1 that stage 2 reads; a legal cut has none.
    """

    layer: int
    frontier: tuple[Crossing, ...]
    tokens: bool
    forbidden_by: tuple[str, ...]

    @property
    def legal(self) -> bool:
        """True if a split can be made here."""
        return not self.forbidden_by and bool(self.frontier)


@dataclass(frozen=True)
class Contract:
    """The contract of a model.

    Attributes:
        state: kind of each layer.
        caches: kinds of cache tensor that each layer keeps; one twice where it keeps two (the indexer of deepseek32).
        cuts: cut 1 to cut n - 1.
    """

    state: tuple[LayerKind, ...]
    caches: tuple[tuple[str, ...], ...]
    cuts: tuple[Cut, ...]

    @property
    def n_layer(self) -> int:
        """Layers of the trunk."""
        return len(self.state)

    @property
    def legal_cuts(self) -> tuple[int, ...]:
        """All layers at which a split can be made."""
        return tuple(cut.layer for cut in self.cuts if cut.legal)

    def cut(self, layer: int) -> Cut:
        """The contract of cut `layer`, 1 to n_layer - 1."""
        return self.cuts[layer - 1]

    def recurrent_in(self, start: int, end: int) -> bool:
        """True if any layer of [start, end) keeps recurrent state; every layer is looked at."""
        return any(kind.recurrent for kind in self.state[start:end])


def derive_contract(step: StepGraphs, n_layer: int) -> Contract:
    """The contract of a model from the graphs of one decode."""
    flow = analyse(step.graphs[0], n_layer)
    caches = _caches_by_layer(flow, n_layer)
    return Contract(
        state=tuple(_kind_of(names) for names in caches),
        caches=caches,
        cuts=tuple(_cut(flow, layer) for layer in range(1, n_layer)),
    )


def _cut(flow: Dataflow, layer: int) -> Cut:
    found = flow.boundary(layer)
    computed = tuple(_crossing(flow.graph.tensors[index], flow.owner[index], flow.n_tokens) for index in found.tensors)
    given = tuple(
        Crossing(column_label((start, end)), BEFORE_LAYERS, "f32", end - start) for start, end in found.columns
    )
    return Cut(layer, (*computed, *given), found.tokens, found.state)


def column_label(columns: Columns) -> str:
    """What a part of the given embeddings is called."""
    return f"{_GIVEN}[{columns[0]}:{columns[1]}]"


def _crossing(tensor: Tensor, layer: int, n_tokens: int) -> Crossing:
    place = "input" if layer == BEFORE_LAYERS else str(layer)
    label = f"{tensor.op.lower()}@{place}" if _UNNAMED.match(tensor.name) else tensor.name
    return Crossing(label, layer, tensor.dtype, math.prod(tensor.shape) // max(n_tokens, 1))


def _caches_by_layer(flow: Dataflow, n_layer: int) -> tuple[tuple[str, ...], ...]:
    found: list[list[str]] = [[] for _ in range(n_layer)]
    for cache in flow.caches.values():
        if 0 <= cache.layer < n_layer:
            found[cache.layer].append(cache.kind)
    return tuple(tuple(sorted(names)) for names in found)


def _kind_of(caches: tuple[str, ...]) -> LayerKind:
    names = set(caches)
    if names - _ATTENTION_CACHES - _RECURRENT_CACHES:
        return LayerKind.UNKNOWN
    attention, recurrent = bool(names & _ATTENTION_CACHES), bool(names & _RECURRENT_CACHES)
    if attention and recurrent:
        return LayerKind.BOTH
    if attention:
        return LayerKind.ATTENTION
    return LayerKind.RECURRENT if recurrent else LayerKind.NEITHER
