"""The graph that llama.cpp ran, as plain data.

`llama_context_params.cb_eval` hands every node to us before it is computed. A node is a `struct ggml_tensor`: its operation,
its sources and its name are enough to rebuild the data flow of a whole decode, on any backend and without a patch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple

from agent.engine.library import FLAG_COMPUTE, FLAG_INPUT, GgmlTensor, load_library
from agent.errors import GraphChanged

# ggml operations that only look at another tensor's data
VIEW_OPS = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})

# how the name of a view of something without a name begins: many of a graph may have the same
_NAMELESS = (b"", b" ")

# the scheduler's copy of a tensor on another device: "<backend>#<name>#<number>" (ggml-backend.cpp)
_COPY_NAME = re.compile(r"^[^#]+#(.+)#\d+$")


class Tensor(NamedTuple):
    """One tensor of a graph.

    Attributes:
        name: as llama.cpp named it; unnamed nodes are ``node_<n>``.
        op: operation that makes it; ``NONE`` for weights, caches and inputs.
        dtype: ggml type, for example ``f32``.
        shape: elements by dimension, ggml order (fastest first).
        inputs: tensors it is computed from, as indexes into `Graph.tensors`.
        view_of: the tensor whose memory it shares, if any.
        ordinal: place in the order of execution, counted over the whole decode; None for what is not computed.
        is_input: filled by the host before the graph runs (tokens, positions, masks).
        n_bytes: size of its data.
        view_offset: bytes from the beginning of the memory that it shares; 0 for what is no view.
    """

    name: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    inputs: tuple[int, ...]
    view_of: int | None
    ordinal: int | None
    is_input: bool
    n_bytes: int
    view_offset: int = 0


@dataclass(frozen=True)
class Graph:
    """The graph of one micro-batch.

    Attributes:
        tensors: all tensors, each after its inputs.
        copied: those of which the scheduler makes a copy for another device before that device begins.
    """

    tensors: tuple[Tensor, ...]
    copied: frozenset[int] = frozenset()

    def root(self, index: int) -> int:
        """The tensor that `index` is a view of, through any number of views; itself when it is none."""
        tensor = self.tensors[index]
        while tensor.view_of is not None and tensor.op in VIEW_OPS:
            index = tensor.view_of
            tensor = self.tensors[index]
        return index


@dataclass(frozen=True)
class StepGraphs:
    """All graphs of one `llama_decode`, one a micro-batch.

    Attributes:
        graphs: in the order of execution.
        n_nodes: nodes that were executed over all of them.
        devices: how many nodes ran on each device: the evidence of where the work was done.
    """

    graphs: tuple[Graph, ...]
    n_nodes: int
    devices: tuple[tuple[str, int], ...]


class GraphRecorder:
    """A tap that records the graphs of one decode and computes nothing itself."""

    wanted: Container[int] | None = None

    def __init__(self) -> None:
        self._ggml = load_library().ggml
        self._graphs: list[list[Tensor]] = []
        self._copied: list[set[int]] = []
        self._index: dict[int, int] = {}
        self._executed: set[int] = set()
        self._first: bytes | None = None
        self._by_name: dict[str, int] = {}
        self._n_nodes = 0
        self._devices: Counter[str] = Counter()
        self._device_of_buffer: dict[int | None, str] = {}
        self._op_names: dict[int, str] = {}
        self._type_names: dict[int, str] = {}

    def ask(self, ordinal: int, pointer: int) -> bool:
        """Record the node; never ask for its data."""
        # a node that comes again opens the graph of the next micro-batch; one with logits may lie elsewhere than one without
        # (`gf_res_prev` in llama-context.cpp), but it begins with the same node
        name = GgmlTensor.from_address(pointer).name
        if not self._graphs or pointer in self._executed or name == self._first:
            self._graphs.append([])
            self._copied.append(set())
            self._index, self._executed, self._by_name = {}, set(), {}
            self._first = None if name[:1] in _NAMELESS else name
        self._executed.add(pointer)
        self._add(pointer, ordinal)
        self._n_nodes = ordinal + 1
        return False

    def done(self, ordinal: int, pointer: int) -> None:
        """Never called, since nothing is asked for."""
        raise GraphChanged(f"node {ordinal} at {pointer:#x} was computed for a tap that asked for nothing")

    def result(self) -> StepGraphs:
        """What was recorded."""
        recorded = zip(self._graphs, self._copied, strict=True)
        graphs = tuple(Graph(tuple(tensors), frozenset(copied)) for tensors, copied in recorded)
        return StepGraphs(graphs, self._n_nodes, tuple(sorted(self._devices.items())))

    def _add(self, pointer: int, ordinal: int | None, name: str | None = None) -> int:
        raw = GgmlTensor.from_address(pointer)
        name = name or raw.name.decode("utf-8", "replace")
        # `ggml_cast` names its own result as a source
        inputs = tuple(self._resolve(source) for source in raw.src[:] if source and source != pointer)
        view_of = self._resolve(raw.view_src) if raw.view_src else None
        computed = ordinal is not None and bool(raw.flags & FLAG_COMPUTE)
        tensors = self._graphs[-1]
        tensors.append(
            Tensor(
                name=name,
                op=self._op_name(raw.op),
                dtype=self._type_name(raw.type),
                shape=tuple(raw.ne[:]),
                inputs=inputs,
                view_of=view_of,
                ordinal=ordinal if computed else None,
                is_input=bool(raw.flags & FLAG_INPUT),
                n_bytes=self._ggml.ggml_nbytes(pointer),
                view_offset=raw.view_offs,
            )
        )
        index = len(tensors) - 1
        self._index[pointer] = index
        self._by_name[name] = index
        if computed:
            self._devices[self._device(raw.buffer)] += 1
        return index

    def _resolve(self, pointer: int) -> int:
        known = self._index.get(pointer)
        if known is not None:
            return known
        copy = _COPY_NAME.match(GgmlTensor.from_address(pointer).name.decode("utf-8", "replace"))
        if copy and copy[1] in self._by_name:
            original = self._by_name[copy[1]]
            self._copied[-1].add(original)
            return original
        # a leaf that is met as a copy only (token ids on another device) goes by its own name
        return self._add(pointer, None, name=copy[1] if copy else None)

    def _op_name(self, op: int) -> str:
        if op not in self._op_names:
            self._op_names[op] = self._ggml.ggml_op_name(op).decode()
        return self._op_names[op]

    def _type_name(self, kind: int) -> str:
        if kind not in self._type_names:
            self._type_names[kind] = self._ggml.ggml_type_name(kind).decode()
        return self._type_names[kind]

    def _device(self, buffer: int | None) -> str:
        if buffer not in self._device_of_buffer:
            self._device_of_buffer[buffer] = self._read_device(buffer)
        return self._device_of_buffer[buffer]

    def _read_device(self, buffer: int | None) -> str:
        if buffer is None:
            return "unknown"
        device = self._ggml.ggml_backend_buft_get_device(self._ggml.ggml_backend_buffer_get_type(buffer))
        # the plain host buffer type belongs to no device
        return self._ggml.ggml_backend_dev_name(device).decode() if device else "CPU"
