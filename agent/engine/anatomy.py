"""The anatomy of a model: its graphs by size of step, its contract, and where each boundary tensor is in a running graph."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Self

import numpy as np

from agent.engine.contract import Contract, derive_contract
from agent.engine.dataflow import Dataflow, analyse
from agent.engine.graph import GraphRecorder, StepGraphs, Tensor
from agent.engine.model import Model
from agent.engine.session import Session, Shape
from agent.errors import GraphChanged


@dataclass(frozen=True)
class Port:
    """A node of a running graph that a tap reads or writes.

    Attributes:
        ordinal: place in the order of execution over the whole decode; how the node is found again, since many have no name.
        name: as traced; checked when the node is met.
        dtype: ggml type.
        n_bytes: size of its data.
    """

    ordinal: int
    name: str
    dtype: str
    n_bytes: int

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """The port of a computed tensor."""
        if tensor.ordinal is None:
            raise GraphChanged(f"boundary tensor {tensor.name} is never computed")
        return cls(tensor.ordinal, tensor.name, tensor.dtype, tensor.n_bytes)


class Anatomy:
    """What is known of the graphs of a model in one shape; each size of step is traced once, when it is first asked for."""

    def __init__(self, model: Model, shape: Shape) -> None:
        self.model = model
        self.shape = shape
        self._steps: dict[int, StepGraphs] = {}
        self._flows: dict[int, tuple[Dataflow, ...]] = {}
        self._ports: dict[tuple[int, int], tuple[Port, ...]] = {}

    def step(self, n_tokens: int) -> StepGraphs:
        """The graphs of one decode of `n_tokens` tokens.

        Raises:
            GraphChanged: the graphs do not account for all tokens, so nodes cannot be told apart.
        """
        if n_tokens not in self._steps:
            recorder = GraphRecorder()
            with Session(self.model, self.shape) as session:
                session.decode(np.arange(n_tokens, dtype=np.int32) % self.model.facts.n_vocab, 0, tap=recorder)
            step = recorder.result()
            expected = -(-n_tokens // self.shape.micro_batch)
            if len(step.graphs) != expected:
                raise GraphChanged(
                    f"{n_tokens} tokens in micro-batches of {self.shape.micro_batch} ran {len(step.graphs)} graphs, "
                    f"{expected} were expected"
                )
            self._steps[n_tokens] = step
        return self._steps[n_tokens]

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

    def ports(self, cut: int, n_tokens: int) -> tuple[Port, ...]:
        """The boundary tensors of `cut` in a decode of `n_tokens` tokens, over all its micro-batches, in order."""
        key = (cut, n_tokens)
        if key not in self._ports:
            self._ports[key] = tuple(
                Port.of(flow.graph.tensors[index])
                for flow in self._flow(n_tokens)
                for index in flow.boundary(cut).tensors
            )
        return self._ports[key]

    def embedding_ports(self, n_tokens: int) -> tuple[Port, ...]:
        """The nodes that turn token ids into vectors, before the first layer."""
        return tuple(
            Port.of(flow.graph.tensors[index]) for flow in self._flow(n_tokens) for index in flow.embedding_nodes()
        )

    def _flow(self, n_tokens: int) -> tuple[Dataflow, ...]:
        if n_tokens not in self._flows:
            self._flows[n_tokens] = tuple(analyse(graph) for graph in self.step(n_tokens).graphs)
        return self._flows[n_tokens]
