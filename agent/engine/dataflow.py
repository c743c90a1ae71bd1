"""The data flow of one graph: who owns which tensor, where state is kept, what a cut severs.

Ownership. A tensor belongs to a layer if its name says so (llama.cpp names nodes ``<what>-<layer>``), but to no lower one than
what it is computed from; else if it reads a weight ``blk.<layer>.*`` or a cache of that layer, else to the highest layer among
its inputs. What comes before the first layer is owned by layer -1, what comes after the last one (weights ``output*`` too) by
the last.

State. A cache tensor is one that llama.cpp names ``cache_<kind>_l<layer>`` (``dsv4_<kind>_l<layer>`` in one model), or any
tensor that is not computed and that the graph writes into: a model may give its cache another name, and one of the pin does.

Any division of the graph into two gives a frontier that is enough, so a surprising name can make it larger than needed,
never wrong.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass

from agent.engine.graph import VIEW_OPS, Graph, Tensor

BEFORE_LAYERS = -1

_NODE_LAYER = re.compile(r"-(\d+)(?: \(.*\))*$")
_WEIGHT_LAYER = re.compile(r"^blk\.(\d+)\.")
_OUTPUT_WEIGHT = re.compile(r"^output[._]")  # what follows the last layer, on the machine that has it
_CACHE = re.compile(r"^(?:cache|dsv4)_(\w+)_l(\d+)$")  # deepseek4 has a second prefix (llama-kv-cache-dsv4.cpp)
_TOKENS = "inp_tokens"
_EMBEDDINGS = ("inp_embd", "embd")  # given vectors, f32; a graph that reads them whole renames them (llama-graph.cpp)
_WRITTEN_CELLS = "attn_inp_k_idxs"  # one a token; graniteswitch gives its token ids no name
_F32_BYTES = 4

# caches that a model of the pin renames -> the kind that they are (kimi-linear.cpp, plamo2.cpp)
_RENAMED_CACHES = {"conv_states_all": "r", "mamba_conv1d_state": "r", "mamba_ssm_states": "s"}


Columns = tuple[int, int]


@dataclass(frozen=True)
class Cache:
    """A tensor that keeps state between decodes: its layer, and its kind (``k``, ``v``, ``r``, ``s``, ``idx_k``, ...)."""

    layer: int
    kind: str


@dataclass(frozen=True)
class Boundary:
    """What crosses one cut in one graph.

    Attributes:
        tensors: indexes into the graph, in the order of execution.
        moments: for each of them the node, as `Tensor.ordinal`, after which it may still be filled in: the one before the first
            that reads it above the cut. Layers below the cut that read it too have then read what the stage had itself. Where
            none does, or where another device is given a copy early, that is its own node.
        tokens: token ids are read above the cut.
        state: names of caches below the cut that are read above it.
        columns: parts [start, end) of a row of given embeddings that are read above the cut (deepstack); what the host fills
            in is no node that could be written, so they cross beside the tensors.
    """

    tensors: tuple[int, ...]
    moments: tuple[int, ...]
    tokens: bool
    state: tuple[str, ...]
    columns: tuple[Columns, ...] = ()


@dataclass(frozen=True)
class Dataflow:
    """A graph and what follows from it.

    Attributes:
        graph: the graph.
        caches: by index into the graph.
        owner: the layer of each tensor; `BEFORE_LAYERS` for what comes before the first.
        host_derived: for each tensor, whether it follows from weights and host inputs other than the text alone, so that
            each side of a cut makes it for itself (masks, rope tables).
    """

    graph: Graph
    caches: Mapping[int, Cache]
    owner: tuple[int, ...]
    host_derived: tuple[bool, ...]

    @property
    def n_tokens(self) -> int:
        """Tokens, or embeddings, in this micro-batch; 0 where the graph takes none."""
        for tensor in self.graph.tensors:
            if tensor.name in (_TOKENS, _WRITTEN_CELLS) or _is_given(tensor):
                return tensor.shape[1 if _is_given(tensor) else 0]
        return 0

    @functools.cached_property
    def _reach(self) -> Mapping[int, int]:
        """For each tensor that is read, no view among them, the highest layer that reads it."""
        reach: dict[int, int] = {}
        for index, tensor in enumerate(self.graph.tensors):
            if tensor.op == "NONE":
                continue
            reader = self.owner[index]
            for root in map(self.graph.root, tensor.inputs):
                reach[root] = max(reader, reach.get(root, reader))
        return reach

    @functools.cached_property
    def _readers(self) -> Mapping[int, tuple[int, ...]]:
        """For each tensor that is read, the computed tensors that read it, through any number of views, in order."""
        readers: dict[int, list[int]] = {}
        for index, tensor in enumerate(self.graph.tensors):
            if tensor.ordinal is not None and tensor.op not in VIEW_OPS:
                for root in {self.graph.root(source) for source in tensor.inputs}:
                    readers.setdefault(root, []).append(index)
        return {root: tuple(found) for root, found in readers.items()}

    def boundary(self, cut: int) -> Boundary:
        """Find what crosses the cut before layer `cut`: what is owned below it and read above it."""
        tensors = self.graph.tensors
        severed = [root for root, reader in self._reach.items() if self.owner[root] < cut <= reader]
        crossing = {root for root in severed if tensors[root].op != "NONE" and not self.host_derived[root]}
        follows = {index for index in crossing if self._follows_from(index, crossing)}
        needed = sorted(crossing - follows, key=lambda index: tensors[index].ordinal or 0)
        return Boundary(
            tensors=tuple(needed),
            moments=tuple(self._last_moment(index, cut, follows) for index in needed),
            tokens=any(tensors[root].name == _TOKENS for root in severed),
            state=tuple(tensors[root].name for root in severed if root in self.caches),
            columns=self._columns(cut) if any(_is_given(tensors[root]) for root in severed) else (),
        )

    @functools.cached_property
    def _copied(self) -> frozenset[int]:
        """Tensors of which, or of a view of which, another device is given a copy."""
        return frozenset(map(self.graph.root, self.graph.copied))

    def _last_moment(self, index: int, cut: int, follows: Container[int]) -> int:
        """See `Boundary.moments`; what the upper side makes from the frontier for itself (`follows`) is read above the cut."""
        tensors = self.graph.tensors
        own = tensors[index].ordinal or 0
        if index in self._copied:
            return own
        above: list[int] = []
        below: list[int] = []
        for reader in self._readers.get(index, ()):
            is_above = self.owner[reader] >= cut or reader in follows
            (above if is_above else below).append(tensors[reader].ordinal or 0)
        first = min(above, default=own + 1)
        return first - 1 if any(place < first for place in below) else own

    def _columns(self, cut: int) -> tuple[Columns, ...]:
        """What layers from `cut` on read of the embeddings; a view that is no range of columns counts as the whole row."""
        tensors, found = self.graph.tensors, set()
        for index, tensor in enumerate(tensors):
            if tensor.op == "NONE" or tensor.op in VIEW_OPS or self.owner[index] < cut:
                continue
            for source in tensor.inputs:
                root = tensors[self.graph.root(source)]
                if _is_given(root):
                    found.add(_columns_of(tensors[source], root))
        return tuple(sorted(found))

    def _follows_from(self, index: int, crossing: Container[int]) -> bool:
        """True if the upper side can make this tensor from what crosses anyway and host inputs, without a weight."""
        for root in map(self.graph.root, self.graph.tensors[index].inputs):
            is_host_input = self.host_derived[root] and self.graph.tensors[root].is_input
            if root not in crossing and not is_host_input:
                return False
        return True

    def embedding_nodes(self) -> tuple[int, ...]:
        """Computed tensors before the first layer that read the token ids directly."""
        tokens = {index for index, tensor in enumerate(self.graph.tensors) if tensor.name == _TOKENS}
        return tuple(
            index
            for index, tensor in enumerate(self.graph.tensors)
            if tensor.ordinal is not None
            and tensor.op not in VIEW_OPS
            and self.owner[index] == BEFORE_LAYERS
            and tokens.intersection(tensor.inputs)
        )


def analyse(graph: Graph, n_layer: int | None = None) -> Dataflow:
    """Work out the data flow of a graph, of whose layers only the first `n_layer` are of the trunk."""
    caches = _find_caches(graph)
    return Dataflow(graph, caches, _find_owners(graph, caches, n_layer), _find_host_derived(graph, caches))


def _is_given(tensor: Tensor) -> bool:
    """True for the embeddings that the host gives in place of token ids; a node may bear the same name."""
    # not only what is flagged as an input: a device that is given a copy of it reads the copy, which bears no flag
    return tensor.op == "NONE" and tensor.name in _EMBEDDINGS


def _columns_of(view: Tensor, embeddings: Tensor) -> Columns:
    width, n_rows = embeddings.shape[:2]
    start = view.view_offset // _F32_BYTES
    if view.op == "VIEW" and view.shape[1] == n_rows and start + view.shape[0] <= width:
        return start, start + view.shape[0]
    return 0, width


def _find_caches(graph: Graph) -> dict[int, Cache]:
    caches: dict[int, Cache] = {}
    for index, tensor in enumerate(graph.tensors):
        if tensor.op == "NONE" and (named := _CACHE.match(tensor.name)):
            caches[index] = Cache(int(named[2]), named[1])
        elif tensor.view_of is not None and tensor.op not in VIEW_OPS and tensor.op != "NONE":
            target = graph.root(tensor.view_of)
            written = graph.tensors[target]
            if written.op == "NONE" and not written.is_input and target not in caches:
                caches[target] = _renamed(written)
    return caches


def _renamed(tensor: Tensor) -> Cache:
    suffix = _NODE_LAYER.search(tensor.name)
    stem = tensor.name[: suffix.start()] if suffix else tensor.name
    return Cache(int(suffix[1]) if suffix else BEFORE_LAYERS, _RENAMED_CACHES.get(stem, stem))


def _find_owners(graph: Graph, caches: Mapping[int, Cache], n_layer: int | None) -> tuple[int, ...]:
    layers: list[int] = []
    for index, tensor in enumerate(graph.tensors):
        if index in caches:
            layer = caches[index].layer
        elif weight := _WEIGHT_LAYER.match(tensor.name):
            layer = int(weight[1])
        elif n_layer and tensor.op == "NONE" and _OUTPUT_WEIGHT.match(tensor.name):
            layer = n_layer - 1
        else:
            suffix = _NODE_LAYER.search(tensor.name) if tensor.op != "NONE" else None
            sources = tensor.inputs if tensor.view_of is None else (*tensor.inputs, tensor.view_of)
            if suffix:  # weights and caches are where they are; what is computed must be there first
                sources = tuple(source for source in sources if graph.tensors[source].op != "NONE")
            named = int(suffix[1]) if suffix else BEFORE_LAYERS
            layer = max((layers[source] for source in sources), default=BEFORE_LAYERS)
            layer = max(layer, named)
        # a layer beyond the trunk that runs with it does so before layer 0: the router of graniteswitch
        layers.append(layer if n_layer is None or layer < n_layer else BEFORE_LAYERS)
    return tuple(layers)


def _find_host_derived(graph: Graph, caches: Container[int]) -> tuple[bool, ...]:
    derived: list[bool] = []
    for index, tensor in enumerate(graph.tensors):
        if tensor.op == "NONE":
            derived.append(index not in caches and tensor.name != _TOKENS and not _is_given(tensor))
        else:
            derived.append(all(derived[source] for source in tensor.inputs))
    return tuple(derived)
