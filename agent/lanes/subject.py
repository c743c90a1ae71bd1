"""The model under test, and everything that a lane may ask of it.

A lane reaches llama.cpp through its subject only. That is also where a seeded fault is put in: a subject whose sessions,
stages or wire do one thing wrong (`agent.faults`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.contracts import RecordedContract
from agent.engine.anatomy import Anatomy
from agent.engine.contract import Contract
from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.engine.resource import Resource
from agent.engine.session import Session, Shape
from agent.engine.spare import session_of
from agent.engine.stage import Stage
from agent.engine.transcript import Transcript, transcribe
from agent.engine.wire import Array, WireType, carry
from agent.header.reader import Header
from agent.lanes.agreement import Agreement
from agent.lanes.policy import CachePolicy, select_policy
from agent.lanes.workload import Workload
from agent.layer_kind import LayerKind
from agent.package.manifest import Package
from agent.package.materialise import materialise
from agent.package.stage import StageParts
from agent.package.write import Identity, write_package
from agent.radix.index import RadixIndex
from matrixgen.family import Family


@dataclass(frozen=True)
class Expectations:
    """What the manifest says of the family, as far as lanes compare with it.

    Attributes:
        family: the row.
        random_weights: the subject is a twin; policies about real weights are measured and not judged.
        recorded: the recorded contract of the architecture, if there is one.
        twin: the name of the twin whose answer is recorded; empty for weights and for the twin of a header.
        projector: the row's projector on this machine; None where there is none.
    """

    family: Family
    random_weights: bool
    recorded: RecordedContract | None = None
    twin: str = ""
    projector: Path | None = None


class Subject(Resource):
    """A loaded model with its header, its expectations and caches of what several lanes share."""

    def __init__(self, model: Model, header: Header, expectations: Expectations, threads: int) -> None:
        self.model = model
        self.header = header
        self.expectations = expectations
        self.threads = threads
        self._anatomies: dict[Shape, Anatomy] = {}
        self._references: dict[Workload, Transcript] = {}
        self.crossings: dict[tuple[Workload, int], tuple[Agreement, bool]] = {}  # those of `agent.lanes.chained.cross`
        self.sensitivity: float | None = None  # that of `agent.lanes.rounding`, once it was asked for

    # -- what a fault may replace ----------------------------------------------------------------------------------------

    def session(self, shape: Shape) -> Session:
        """An empty session."""
        return session_of(self.model, shape)

    def stage(self, anatomy: Anatomy, start: int, end: int) -> Stage:
        """A fresh stage."""
        return Stage(anatomy, self.session(anatomy.shape), start, end)

    def load_on_cpu(self) -> Model:
        """The same file once more, on the CPU alone."""
        return Model(self.model.path, choose_device("cpu"))

    def carry(self, values: Array, wire: WireType) -> Array:
        """What arrives over the wire."""
        return carry(values, wire)

    def policy(self, kinds: Sequence[LayerKind]) -> CachePolicy:
        """The cache policy of a range of layers of these kinds."""
        return select_policy(kinds)

    def index(self, release: Callable[[Any], None]) -> RadixIndex[Any]:
        """An empty index of a prefix cache."""
        return RadixIndex(release)

    def package(self, folder: Path) -> Package:
        """The model as a layer package in `folder`."""
        return write_package(self.model.path, folder, Identity(model_id=self.expectations.family.family))

    def materialise(self, package: Package, stage: StageParts, path: Path) -> None:
        """Put a stage of it together as a file that llama.cpp loads."""
        materialise(package, stage, path, stand_ins=True)

    # -- shared by lanes -------------------------------------------------------------------------------------------------

    @property
    def n_layer(self) -> int:
        """Layers of the trunk."""
        return self.model.facts.n_layer

    @property
    def selects(self) -> bool:
        """True if the model picks experts or cells by a top k, so that rounding can tip a choice."""
        return any(part in tensor.name for tensor in self.header.tensors for part in ("_exps.", ".indexer"))

    def shape(self, micro_batch: int) -> Shape:
        """The shape of this subject's contexts."""
        return Shape(micro_batch=micro_batch, threads=self.threads)

    def anatomy(self, micro_batch: int) -> Anatomy:
        """Graphs and contract in contexts of this micro-batch."""
        return self.anatomy_in(self.shape(micro_batch))

    def anatomy_in(self, shape: Shape) -> Anatomy:
        """Graphs and contract in contexts of this shape."""
        if shape not in self._anatomies:
            self._anatomies[shape] = Anatomy(self.model, shape)
        return self._anatomies[shape]

    @functools.cached_property
    def contract(self) -> Contract:
        """The contract of the model."""
        return self.anatomy(DEFAULT_MICRO_BATCH).contract

    def reference(self, workload: Workload) -> Transcript:
        """What the whole model says, with the frames of every legal cut. Never touched by a fault."""
        if workload not in self._references:
            anatomy = self.anatomy(workload.micro_batch)
            with Stage(anatomy, session_of(self.model, anatomy.shape), 0, self.n_layer) as whole:
                self._references[workload] = transcribe(
                    whole,
                    workload.prompt(self.model.facts.n_vocab),
                    workload.decode_steps,
                    cuts=self.contract.legal_cuts,
                )
        return self._references[workload]

    def share(self, other: Subject) -> None:
        """Take over what `other` knows of the same model: graphs and references, which no fault touches."""
        self._anatomies, self._references = other._anatomies, other._references

    def close(self) -> None:
        """Free the model."""
        self.model.close()


DEFAULT_MICRO_BATCH = 16
