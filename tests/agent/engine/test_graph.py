"""The recorder, on nodes made in memory (copies, micro-batches, devices) and on those of real models."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from agent.engine.graph import Graph, GraphRecorder
from agent.engine.library import FLAG_COMPUTE, FLAG_INPUT, GgmlTensor, load_library
from agent.engine.session import Session
from agent.errors import GraphChanged
from tests.agent.conftest import Subjects

_F32 = 0
_ROOM = 512  # bytes: more than the struct has, since the engine declares its first fields only


class Memory:
    """Tensors in memory, as llama.cpp has them while it computes a graph."""

    def __init__(self) -> None:
        ggml = load_library().ggml
        count = 256
        self._ops = {name.decode(): op for op in range(count) if (name := _op_name(ggml, op)) is not None}
        self._buffers: list[Any] = []

    def tensor(
        self, name: str, op: str = "NONE", *sources: int, view_of: int | None = None, host: bool = False, width: int = 4
    ) -> int:
        """The address of a new tensor of `width` f32 elements."""
        buffer = ctypes.create_string_buffer(_ROOM)
        raw = GgmlTensor.from_buffer(buffer)
        raw.type = _F32
        raw.ne[:] = [width, 1, 1, 1]
        raw.nb[:] = [4, 4 * width, 4 * width, 4 * width]
        raw.op = self._ops[op]
        raw.flags = FLAG_INPUT if host else FLAG_COMPUTE if op != "NONE" else 0
        raw.src[: len(sources)] = list(sources)
        raw.view_src = view_of
        raw.name = name.encode()
        self._buffers.append(buffer)
        return ctypes.addressof(buffer)


def _op_name(ggml: ctypes.CDLL, op: int) -> bytes | None:
    known = 60  # asking for a number beyond the last operation reads past a table: those in use here come early
    return ggml.ggml_op_name(op) if op < known else None


@pytest.fixture
def memory() -> Memory:
    """Where tensors are made."""
    return Memory()


def record(*nodes: int) -> GraphRecorder:
    """Execute nodes in this order."""
    recorder = GraphRecorder()
    for ordinal, node in enumerate(nodes):
        assert not recorder.ask(ordinal, node)
    return recorder


def names(graph: Graph) -> list[str]:
    """Names of all tensors of a graph."""
    return [tensor.name for tensor in graph.tensors]


def test_a_node_is_recorded_after_its_sources(memory: Memory) -> None:
    """Sources that were not executed become leaves in front of the node; all fields are read."""
    weight = memory.tensor("blk.0.w.weight", width=8)
    ids = memory.tensor("inp_tokens", host=True)
    rows = memory.tensor("rows", "GET_ROWS", weight, ids)
    total = memory.tensor("l_out-0", "ADD", rows, rows)
    step = record(rows, total).result()
    (graph,) = step.graphs
    assert names(graph) == ["blk.0.w.weight", "inp_tokens", "rows", "l_out-0"]
    assert [tensor.inputs for tensor in graph.tensors] == [(), (), (0, 1), (2, 2)]
    assert [tensor.ordinal for tensor in graph.tensors] == [None, None, 0, 1]
    assert [tensor.is_input for tensor in graph.tensors] == [False, True, False, False]
    assert [tensor.op for tensor in graph.tensors] == ["NONE", "NONE", "GET_ROWS", "ADD"]
    assert graph.tensors[0].dtype == "f32"
    assert graph.tensors[0].shape == (8, 1, 1, 1)
    assert graph.tensors[0].n_bytes == 32
    assert step.n_nodes == 2


def test_a_view_knows_what_it_views(memory: Memory) -> None:
    """The viewed tensor is found by its address, executed or not."""
    cache = memory.tensor("cache_k_l0")
    view = memory.tensor("cache_k_l0 (view)", "VIEW", cache, view_of=cache)
    (graph,) = record(view).result().graphs
    assert graph.tensors[1].view_of == 0
    assert graph.root(1) == 0


def test_a_node_that_comes_again_opens_the_graph_of_the_next_micro_batch(memory: Memory) -> None:
    """Both graphs hold their own leaves, and ordinals count on over the whole decode."""
    leaf = memory.tensor("inp_tokens", host=True)
    first = memory.tensor("rows", "GET_ROWS", leaf, leaf)
    second = memory.tensor("l_out-0", "ADD", first, first)
    step = record(first, second, first, second).result()
    assert len(step.graphs) == 2
    assert names(step.graphs[0]) == names(step.graphs[1]) == ["inp_tokens", "rows", "l_out-0"]
    assert [[tensor.ordinal for tensor in graph.tensors] for graph in step.graphs] == [[None, 0, 1], [None, 2, 3]]
    assert step.n_nodes == 4


def test_the_schedulers_copy_of_a_node_is_that_node(memory: Memory) -> None:
    """A tensor copied to another device resolves to its original, so that the data flow is not torn at the copy."""
    node = memory.tensor("l_out-3", "ADD", memory.tensor("a"), memory.tensor("b"))
    copy = memory.tensor("CUDA0#l_out-3#0")
    reader = memory.tensor("l_out-4", "ADD", copy, copy)
    (graph,) = record(node, reader).result().graphs
    assert names(graph) == ["a", "b", "l_out-3", "l_out-4"]
    assert graph.tensors[3].inputs == (2, 2)
    assert graph.copied == {2}


def test_copies_with_marks_in_their_names_resolve_too(memory: Memory) -> None:
    """Suffixes of views and marks within the name belong to the original's name."""
    node = memory.tensor("state #1-3 (view)", "ADD", memory.tensor("a"), memory.tensor("b"))
    reader = memory.tensor("l_out-4", "ADD", memory.tensor("CUDA0#state #1-3 (view)#7"), node)
    (graph,) = record(node, reader).result().graphs
    assert graph.tensors[-1].inputs == (2, 2)


def test_a_copy_belongs_to_its_own_micro_batch(memory: Memory) -> None:
    """After a new graph has begun, a copy never resolves to a node of the graph before."""
    node = memory.tensor("l_out-3", "ADD", memory.tensor("a"), memory.tensor("b"))
    reader = memory.tensor("l_out-4", "ADD", memory.tensor("CUDA0#l_out-3#0"), node)
    step = record(node, reader, node, reader).result()
    for graph in step.graphs:
        assert graph.tensors[-1].inputs == (2, 2)
        assert len(graph.tensors) == 4
        assert graph.copied == {2}


@pytest.mark.parametrize("name", ["inp_tokens", "blk.3.attn.weight", "cache_k_l3"])
def test_the_copy_of_a_leaf_goes_by_the_name_of_the_leaf(memory: Memory, name: str) -> None:
    """A leaf that is met as a copy only is still known as the token ids, the weight or the cache that it is."""
    reader = memory.tensor("l_out-4", "ADD", memory.tensor(f"CUDA0#{name}#0"), memory.tensor(f"CUDA0#{name}#0"))
    (graph,) = record(reader).result().graphs
    assert names(graph) == [name, "l_out-4"]
    assert graph.tensors[1].inputs == (0, 0)


def test_a_node_that_names_itself_as_a_source_is_recorded_once(memory: Memory) -> None:
    """`ggml_cast` does so; the source is left out."""
    weight = memory.tensor("w")
    node = memory.tensor("cast-0", "CPY", weight)
    GgmlTensor.from_address(node).src[1] = node
    (graph,) = record(node).result().graphs
    assert names(graph) == ["w", "cast-0"]
    assert graph.tensors[1].inputs == (0,)


def test_a_node_without_a_buffer_ran_on_an_unknown_device(memory: Memory) -> None:
    """Where nobody says where a node ran, that is no evidence for any device."""
    node = memory.tensor("l_out-0", "ADD", memory.tensor("a"), memory.tensor("b"))
    assert record(node).result().devices == (("unknown", 1),)


def test_the_recorder_never_asks_for_data(memory: Memory) -> None:
    """A node that is handed over computed means that something else asked; the trace is not trusted."""
    node = memory.tensor("l_out-0", "ADD", memory.tensor("a"), memory.tensor("b"))
    with pytest.raises(GraphChanged, match="asked for nothing"):
        record(node).done(0, node)


@pytest.mark.parametrize("family", ["qwen3-dense", "lfm2", "rwkv7"])
def test_a_real_decode_is_recorded_whole(subjects: Subjects, family: str) -> None:
    """Two micro-batches give two graphs with every node on the CPU, each after what it reads, ordinals without a gap."""
    subject = subjects(family)
    recorder = GraphRecorder()
    with Session(subject.model, subject.shape(16)) as session:
        session.decode(np.arange(1, 21, dtype=np.int32), 0, tap=recorder)
    step = recorder.result()
    assert [_tokens(graph) for graph in step.graphs] == [16, 4]
    computed = [tensor for graph in step.graphs for tensor in graph.tensors if tensor.ordinal is not None]
    assert all(before.ordinal < after.ordinal for before, after in pairwise(computed))  # type: ignore[operator]
    assert step.devices == (("CPU", len(computed)),)
    for graph in step.graphs:
        for index, tensor in enumerate(graph.tensors):
            assert all(source < index for source in tensor.inputs)


def _tokens(graph: Graph) -> int:
    return next(tensor.shape[0] for tensor in graph.tensors if tensor.name == "inp_tokens")


def test_one_shape_gives_one_graph(subjects: Subjects) -> None:
    """The same batch shape gives the same nodes in the same order, whatever the tokens and the position."""
    subject = subjects("qwen3-dense")

    def trace(begin: Callable[[Session], int], first: int) -> Graph:
        recorder = GraphRecorder()
        with Session(subject.model, subject.shape(16)) as session:
            session.decode(np.arange(first, first + 16, dtype=np.int32), begin(session), tap=recorder)
        (graph,) = recorder.result().graphs
        return graph

    def after_sixteen(session: Session) -> int:
        session.decode(np.arange(1, 17, dtype=np.int32), 0)
        return 16

    early, late = trace(lambda _session: 0, 1), trace(after_sixteen, 40)
    assert [(t.name, t.op, t.inputs) for t in early.tensors] == [(t.name, t.op, t.inputs) for t in late.tensors]
