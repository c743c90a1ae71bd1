"""What a cut means, read off the graph: who owns which tensor, what must cross, where state lives, which cuts are illegal.

Ownership. A tensor belongs to a layer if its name says so (llama.cpp names nodes ``<what>-<layer>``), else if it reads a
weight ``blk.<layer>.*`` or a cache ``cache_*_l<layer>``, else to the highest layer among its inputs. What comes before the
first layer is owned by layer -1, what comes after the last one by the last.

Frontier. For cut k, stage 1 owns what belongs to layers below k and stage 2 the rest. The frontier is every computed tensor
of stage 1 that stage 2 reads. Weights are on both sides; values that follow from host inputs alone (masks, rope tables) are
computed by each side for itself; token ids that stage 2 reads must cross as well. Any division of the graph into two gives a
correct frontier, so a surprising name can make it larger than needed, never wrong.

Illegal. A cut is illegal if stage 2 reads a cache that stage 1 owns (KV sharing): state cannot cross at each step.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from agent.engine.graph import VIEW_OPS, Graph, StepGraphs, Tensor
from agent.layer_kind import LayerKind

BEFORE_LAYERS = -1

_NODE_LAYER = re.compile(r"-(\d+)(?: \(.*\))*$")
_WEIGHT_LAYER = re.compile(r"^blk\.(\d+)\.")
_CACHE = re.compile(r"^cache_(\w+?)_l(\d+)")
_UNNAMED = re.compile(r"^(?:node|leaf)_\d+")
_TOKENS = "inp_tokens"
_EMBEDDINGS = "inp_embd"

# suffixes of llama.cpp's cache tensors; what is not listed is an unknown state and disables reuse
_ATTENTION_STATE = frozenset({"k", "v", "idx_k", "idx_v", "k_idx"})
_RECURRENT_STATE = frozenset({"r", "s", "ple_r"})


@dataclass(frozen=True)
class Crossing:
    """One tensor that crosses a cut.

    Attributes:
        label: its name, or operation and layer where llama.cpp gave it none.
        dtype: ggml type.
        width: elements a token.
    """

    label: str
    dtype: str
    width: int


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
    """The contract of a model: its state map and all its cuts."""

    n_layer: int
    state: tuple[LayerKind, ...]
    caches: tuple[tuple[str, ...], ...]
    cuts: tuple[Cut, ...]

    def cut(self, layer: int) -> Cut:
        """The contract of cut `layer`, 1 to n_layer - 1."""
        return self.cuts[layer - 1]

    @property
    def legal_cuts(self) -> tuple[int, ...]:
        """All layers at which a split can be made."""
        return tuple(cut.layer for cut in self.cuts if cut.legal)

    def recurrent_in(self, start: int, end: int) -> bool:
        """True if any layer of [start, end) keeps recurrent state; every layer is looked at."""
        return any(kind.recurrent for kind in self.state[start:end])


def owners(graph: Graph) -> tuple[int, ...]:
    """The layer that owns each tensor of `graph`; `BEFORE_LAYERS` for what comes before the first."""
    layers: list[int] = []
    for tensor in graph.tensors:
        named = _CACHE.match(tensor.name) or _WEIGHT_LAYER.match(tensor.name)
        if named:
            layer = int(named[named.lastindex or 1])
        elif tensor.op != "NONE" and (suffix := _NODE_LAYER.search(tensor.name)):
            layer = int(suffix[1])
        else:
            sources = (*tensor.inputs, *(() if tensor.view_of is None else (tensor.view_of,)))
            layer = max((layers[index] for index in sources), default=BEFORE_LAYERS)
        layers.append(layer)
    return tuple(layers)


def host_derived(graph: Graph) -> tuple[bool, ...]:
    """For each tensor, whether it follows from weights and host inputs other than tokens alone."""
    derived: list[bool] = []
    for tensor in graph.tensors:
        if tensor.op == "NONE":
            is_text = tensor.name in (_TOKENS, _EMBEDDINGS)
            derived.append(not is_text and not _CACHE.match(tensor.name))
        else:
            derived.append(all(derived[index] for index in tensor.inputs))
    return tuple(derived)


@dataclass(frozen=True)
class Boundary:
    """The tensors of one graph that cross one cut.

    Attributes:
        tensors: indexes into the graph, in the order of execution.
        tokens: token ids are read above the cut.
        state: names of caches below the cut that are read above it.
    """

    tensors: tuple[int, ...]
    tokens: bool
    state: tuple[str, ...]


def boundary(graph: Graph, layer: int, owner: tuple[int, ...], derived: tuple[bool, ...]) -> Boundary:
    """Find what crosses the cut before `layer`. `owner` and `derived` are those of `owners` and `host_derived`."""
    crossing: dict[int, None] = {}
    state: dict[str, None] = {}
    tokens = False
    for index, tensor in enumerate(graph.tensors):
        if tensor.op == "NONE" or owner[index] < layer:
            continue
        for source in tensor.inputs:
            root = graph.root(source)
            origin = graph.tensors[root]
            if owner[root] >= layer:
                continue
            if origin.op != "NONE":
                if not derived[root]:
                    crossing[root] = None
            elif _CACHE.match(origin.name):
                state[origin.name] = None
            elif origin.name in (_TOKENS, _EMBEDDINGS):
                tokens = True
    ordered = sorted(crossing, key=lambda index: graph.tensors[index].ordinal or 0)
    needed = tuple(index for index in ordered if not _follows_from(graph, index, crossing, derived))
    return Boundary(needed, tokens, tuple(state))


def _follows_from(graph: Graph, index: int, crossing: Container[int], derived: tuple[bool, ...]) -> bool:
    """True if stage 2 can make this tensor from what crosses anyway and host inputs, without a weight of stage 1."""
    for source in graph.tensors[index].inputs:
        root = graph.root(source)
        is_host_input = derived[root] and graph.tensors[root].is_input
        if root not in crossing and not is_host_input:
            return False
    return True


def embedding_nodes(graph: Graph) -> tuple[int, ...]:
    """Computed tensors that read the token ids directly: the first thing that stage 1 makes of its input."""
    tokens = {index for index, tensor in enumerate(graph.tensors) if tensor.name == _TOKENS}
    return tuple(
        index
        for index, tensor in enumerate(graph.tensors)
        if tensor.ordinal is not None and tensor.op not in VIEW_OPS and tokens.intersection(tensor.inputs)
    )


def derive_contract(step: StepGraphs, n_layer: int, n_tokens: int) -> Contract:
    """The contract of a model from the graphs of one decode of `n_tokens` tokens."""
    graph = step.graphs[0]
    owner, derived = owners(graph), host_derived(graph)
    tokens_in_graph = _tokens_in(graph) or n_tokens
    cuts = []
    for layer in range(1, n_layer):
        found = boundary(graph, layer, owner, derived)
        frontier = tuple(_crossing(graph.tensors[i], owner[i], tokens_in_graph) for i in found.tensors)
        cuts.append(Cut(layer, frontier, found.tokens, found.state))
    caches = cache_names(graph, n_layer)
    return Contract(n_layer, tuple(_state_kind(names) for names in caches), caches, tuple(cuts))


def cache_names(graph: Graph, n_layer: int) -> tuple[tuple[str, ...], ...]:
    """For each layer, the kinds of cache tensor that it owns (``k``, ``v``, ``r``, ``s``, ...)."""
    found: list[set[str]] = [set() for _ in range(n_layer)]
    for tensor in graph.tensors:
        if tensor.op == "NONE" and (cache := _CACHE.match(tensor.name)) and int(cache[2]) < n_layer:
            found[int(cache[2])].add(cache[1])
    return tuple(tuple(sorted(names)) for names in found)


def _state_kind(caches: tuple[str, ...]) -> LayerKind:
    names = set(caches)
    if names - _ATTENTION_STATE - _RECURRENT_STATE:
        return LayerKind.UNKNOWN
    attention, recurrent = bool(names & _ATTENTION_STATE), bool(names & _RECURRENT_STATE)
    if attention and recurrent:
        return LayerKind.BOTH
    if attention:
        return LayerKind.ATTENTION
    return LayerKind.RECURRENT if recurrent else LayerKind.NEITHER


def _crossing(tensor: Tensor, layer: int, n_tokens: int) -> Crossing:
    label = f"{tensor.op.lower()}@{layer}" if _UNNAMED.match(tensor.name) else tensor.name
    elements = 1
    for size in tensor.shape:
        elements *= size
    return Crossing(label, tensor.dtype, elements // n_tokens)


def _tokens_in(graph: Graph) -> int:
    return next((tensor.shape[0] for tensor in graph.tensors if tensor.name == _TOKENS), 0)
