"""The anatomy of a model: its graphs by size of step, its contract, and where each boundary tensor is in a running graph."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Self

import numpy as np

from agent.engine.contract import Contract, column_label, derive_contract
from agent.engine.dataflow import Cache, Columns, Dataflow, analyse
from agent.engine.embeddings import Embeddings
from agent.engine.graph import GraphRecorder, StepGraphs, Tensor
from agent.engine.model import Model, ModelFacts
from agent.engine.session import Shape, Tokens
from agent.engine.spare import session_of
from agent.errors import GraphChanged

Counts = tuple[int, ...]  # tokens of each sequence in one decode


@dataclass(frozen=True)
class Port:
    """A node of a running graph that a tap reads or writes.

    Attributes:
        ordinal: place in the order of execution over the whole decode; how the node is found again, since many have no name.
        name: as traced; checked when the node is met.
        dtype: ggml type.
        n_bytes: size of its data.
        moment: place after which what arrives is written: its own, or a later one where the stage below the cut reads the
            tensor too and must not learn the truth.
        columns: part of the rows of the given embeddings that it stands for; None for a node. It is not found by an ordinal:
            a stage takes it from, and puts it into, the block that it is given.
    """

    ordinal: int
    name: str
    dtype: str
    n_bytes: int
    moment: int
    columns: Columns | None = None

    @classmethod
    def of(cls, tensor: Tensor, moment: int | None = None) -> Self:
        """The port of a computed tensor."""
        if tensor.ordinal is None:
            raise GraphChanged(f"boundary tensor {tensor.name} is never computed")
        return cls(
            tensor.ordinal, tensor.name, tensor.dtype, tensor.n_bytes, tensor.ordinal if moment is None else moment
        )

    @classmethod
    def of_input(cls, columns: Columns, n_tokens: int) -> Self:
        """The port of a part of `n_tokens` given embeddings."""
        return cls(-1, column_label(columns), "f32", 4 * n_tokens * (columns[1] - columns[0]), -1, columns)


class Anatomy:
    """What is known of the graphs of a model in one shape; each size of step is traced once, when it is first asked for.

    Attributes:
        embedded: the graphs are those of decodes that are given embeddings in place of token ids.
    """

    def __init__(self, model: Model, shape: Shape, *, embedded: bool = False) -> None:
        self.model = model
        self.shape = shape
        self.embedded = embedded
        self._steps: dict[Counts, StepGraphs] = {}
        self._flows: dict[Counts, tuple[Dataflow, ...]] = {}
        self._ports: dict[tuple[int, Counts], tuple[Port, ...]] = {}

    def step(self, *counts: int) -> StepGraphs:
        """The graphs of one decode with so many tokens of each sequence in it; most often there is one sequence.

        Raises:
            GraphChanged: the graphs do not account for all tokens, so nodes cannot be told apart.
        """
        if counts not in self._steps:
            recorder = GraphRecorder()
            with session_of(self.model, self.shape) as session:
                if self.embedded:
                    session.decode_embeddings(_blank(sum(counts), self.model.facts), tap=recorder)
                else:
                    parts = [
                        (_any_tokens(count, self.model.facts), 0, sequence) for sequence, count in enumerate(counts)
                    ]
                    session.decode_together(parts, recorder)
            step = recorder.result()
            # how llama.cpp splits a batch of several sequences is its own affair
            least = -(-sum(counts) // self.shape.micro_batch)
            if len(step.graphs) < least or (len(counts) == 1 and len(step.graphs) > least):
                raise GraphChanged(
                    f"{' + '.join(map(str, counts))} tokens in micro-batches of {self.shape.micro_batch} ran "
                    f"{len(step.graphs)} graphs, {least} were expected"
                )
            self._steps[counts] = step
        return self._steps[counts]

    @functools.cached_property
    def contract(self) -> Contract:
        """The contract of the model; it must be the same for a prefill and for a decode of one token.

        Raises:
            GraphChanged: it is not.
        """
        n_layer = self.model.facts.n_layer
        prefill = derive_contract(self.step(self.shape.micro_batch), n_layer)
        single = derive_contract(self.step(1), n_layer)
        if prefill != single:
            different = next((a.layer for a, b in zip(prefill.cuts, single.cuts, strict=True) if a != b), None)
            raise GraphChanged(
                f"prefill and decode need different tensors at cut {different}: no one contract holds for both"
            )
        return prefill

    def ports(self, cut: int, *counts: int) -> tuple[Port, ...]:
        """The boundary tensors of `cut` in a decode of so many tokens of each sequence, over all micro-batches, in order."""
        key = (cut, counts)
        if key not in self._ports:
            boundaries = [(flow, flow.boundary(cut)) for flow in self._flow(*counts)]
            nodes = [
                Port.of(flow.graph.tensors[index], moment)
                for flow, found in boundaries
                for index, moment in zip(found.tensors, found.moments, strict=True)
            ]
            # one port over all micro-batches, since the host gives the whole block at once
            inputs = [Port.of_input(columns, sum(counts)) for columns in boundaries[0][1].columns]
            self._ports[key] = (*nodes, *inputs)
        return self._ports[key]

    def cache_name(self, layer: int, kind: str) -> str:
        """What llama.cpp calls the cache of this kind in a graph; a layer that has two of a kind gives them one name.

        Raises:
            GraphChanged: the layer has none.
        """
        flow = self._flow(1)[0]
        for index, cache in flow.caches.items():
            if cache == Cache(layer, kind):
                return flow.graph.tensors[index].name
        raise GraphChanged(f"layer {layer} has no cache of the kind {kind}")

    @functools.cached_property
    def of_embeddings(self) -> Anatomy:
        """The same model in the same shape, given embeddings in place of token ids: other graphs, another contract."""
        return Anatomy(self.model, self.shape, embedded=True)

    def embedding_ports(self, *counts: int) -> tuple[Port, ...]:
        """The nodes that turn token ids into vectors, before the first layer."""
        return tuple(
            Port.of(flow.graph.tensors[index]) for flow in self._flow(*counts) for index in flow.embedding_nodes()
        )

    def _flow(self, *counts: int) -> tuple[Dataflow, ...]:
        if counts not in self._flows:
            self._flows[counts] = tuple(analyse(graph, self.model.facts.n_layer) for graph in self.step(*counts).graphs)
        return self._flows[counts]


def _any_tokens(count: int, facts: ModelFacts) -> Tokens:
    return np.arange(count, dtype=np.int32) % facts.n_vocab


def _blank(count: int, facts: ModelFacts) -> Embeddings:
    positions = np.broadcast_to(np.arange(count, dtype=np.int32), (facts.position_axes, count))
    return Embeddings(vectors=np.zeros((count, facts.n_embd_inp), dtype=np.float32), positions=positions, span=count)
