"""Subjects that hand out faulty sessions, stages, wires and policies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import ClassVar

from agent.engine.anatomy import Anatomy, Port
from agent.engine.contract import Contract, Crossing
from agent.engine.model import Model
from agent.engine.session import Session, Shape
from agent.engine.stage import Bytes, Frame, Stage
from agent.engine.wire import Array, WireType
from agent.faults import sessions
from agent.header.reader import Header
from agent.lanes.policy import CachePolicy
from agent.lanes.subject import Expectations, Subject
from agent.layer_kind import LayerKind


class FaultySessions(Subject):
    """All sessions are of one faulty kind."""

    kind: ClassVar[type[Session]] = Session

    def session(self, shape: Shape) -> Session:
        """A faulty session."""
        return self.kind(self.model, shape)


class DroppedRecurrentState(FaultySessions):
    """Restores lose the state of the middle one of the recurrent layers."""

    def session(self, shape: Shape) -> Session:
        """A session that loses it."""
        session = sessions.DroppedRecurrentState(self.model, shape)
        layers = [layer for layer, kind in enumerate(self.contract.state) if kind.recurrent]
        layer = layers[len(layers) // 2]
        kept = "s" if "s" in self.contract.caches[layer] else "r"
        session.cache = f"cache_{kept}_l{layer}"
        return session


class FlippedKvByte(FaultySessions):
    """Restores get one byte of the first attention layer's keys wrong."""

    def session(self, shape: Shape) -> Session:
        """A session that gets it wrong."""
        session = sessions.FlippedKvByte(self.model, shape)
        layer = next(layer for layer, kind in enumerate(self.contract.state) if kind.attention)
        session.cache = f"cache_k_l{layer}"
        return session


class WrongSequence(FaultySessions):
    """Another sequence is exported and lent."""

    kind = sessions.WrongSequence


class LazyImport(FaultySessions):
    """Imports do nothing."""

    kind = sessions.LazyImport


class ShiftedPosition(FaultySessions):
    """What follows a restore is one position too far."""

    kind = sessions.ShiftedPosition


class NoisyNode(Subject):
    """Every third session computes one node wrong."""

    _opened = 0

    def session(self, shape: Shape) -> Session:
        """A sound session, or a noisy one."""
        self._opened += 1
        if self._opened % 3:
            return super().session(shape)
        session = sessions.Noisy(self.model, shape)
        cut = self.contract.legal_cuts[-1]
        session.ordinal = self.anatomy(shape.micro_batch).ports(cut, 1)[-1].ordinal
        return session


class _ForgetfulStage(Stage):
    def writes(self, count: int, arriving: Frame | None) -> dict[Port, Bytes]:
        writes = super().writes(count, arriving)
        if writes:
            writes.popitem()
        return writes


class ForgottenTensor(Subject):
    """One boundary tensor never arrives."""

    def stage(self, anatomy: Anatomy, start: int, end: int) -> Stage:
        """A stage that does not write it."""
        return _ForgetfulStage(anatomy, self.session(anatomy.shape), start, end)


class QuantisedWire(Subject):
    """The wire is q8 whatever was asked."""

    def carry(self, values: Array, wire: WireType) -> Array:
        """Quantise, whatever was asked."""
        del wire
        return super().carry(values, WireType.Q8)


class FirstLayerOnly(Subject):
    """The cache policy is decided by the first layer of a stage (the shape of bug B1)."""

    def policy(self, kinds: Sequence[LayerKind]) -> CachePolicy:
        """Look at one layer."""
        return super().policy(kinds[:1])


class OtherArchitecture(Subject):
    """The file is of another architecture than the row says."""

    def __init__(self, model: Model, header: Header, expectations: Expectations, threads: int) -> None:
        super().__init__(model, header, expectations, threads)
        self.header = dataclasses.replace(self.header, architecture=f"{self.header.architecture}-other")


class ChangedFrontier(Subject):
    """A tensor crosses every cut that did not cross when the contract was recorded."""

    @functools.cached_property
    def contract(self) -> Contract:
        """The contract of a pin in which it crosses."""
        contract = super().contract
        extra = Crossing("sideband@0", 0, "f32", 1)
        cuts = tuple(dataclasses.replace(cut, frontier=(*cut.frontier, extra)) for cut in contract.cuts)
        return dataclasses.replace(contract, cuts=cuts)
