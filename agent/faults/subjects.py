"""Subjects that hand out faulty sessions, stages, wires and policies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from agent.engine.anatomy import Anatomy, Counts, Port
from agent.engine.contract import Contract, Crossing
from agent.engine.model import Model
from agent.engine.session import Logits, Session, Shape, Tokens
from agent.engine.stage import Bytes, Frame, Stage
from agent.engine.wire import Array, WireType
from agent.faults import indexes, sessions, sessions_decode
from agent.header.reader import Header
from agent.lanes.policy import CachePolicy
from agent.lanes.subject import DEFAULT_MICRO_BATCH, Expectations, Subject
from agent.layer_kind import LayerKind
from agent.radix.index import RadixIndex


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
        kinds = self.contract.caches[layer]
        compressors = [kind for kind in kinds if kind.endswith("_state_kv")]  # deepseek4
        kept = (*compressors, "s" if "s" in kinds else "r")[0]
        session.cache = self.anatomy(DEFAULT_MICRO_BATCH).cache_name(layer, kept)
        return session


class FlippedKvByte(FaultySessions):
    """Restores get one byte of the first attention layer's keys wrong."""

    def session(self, shape: Shape) -> Session:
        """A session that gets it wrong."""
        session = sessions.FlippedKvByte(self.model, shape)
        layer = next(layer for layer, kind in enumerate(self.contract.state) if kind.attention)
        session.cache = self.anatomy(DEFAULT_MICRO_BATCH).cache_name(layer, "k")
        session.window = self.header.get_uint(self.header.key("attention.sliding_window"), 0)
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


class LateRecord(FaultySessions):
    """What goes on from a restored state is recorded too early."""

    kind = sessions.LateRecord


class StaleLogits(FaultySessions):
    """Some decodes return older logits."""

    kind = sessions_decode.StaleLogits


class SwappedOutputs(FaultySessions):
    """Rows of logits change places."""

    kind = sessions_decode.SwappedOutputs


class NotANumber(FaultySessions):
    """Logits are NaN."""

    kind = sessions_decode.NotANumber


class Aborting(FaultySessions):
    """Native code aborts."""

    kind = sessions_decode.Aborting


class ThreadDependent(FaultySessions):
    """Threads change bits."""

    kind = sessions_decode.ThreadDependent


class ShapeDependent(FaultySessions):
    """One token at a time is computed wrongly."""

    kind = sessions_decode.ShapeDependent


class OneSequenceForAll(FaultySessions):
    """Sequences share their cells."""

    kind = sessions_decode.OneSequenceForAll


class MixedNeighbours(FaultySessions):
    """The third sequence of a batch gets what belongs to the second one."""

    kind = sessions_decode.MixedNeighbours


class WornMemory(FaultySessions):
    """A memory that was used for long computes wrongly."""

    kind = sessions_decode.WornMemory


class LazyTakeBack(FaultySessions):
    """Taking back does nothing."""

    kind = sessions_decode.LazyTakeBack


class ShortExport(FaultySessions):
    """Exports are too short."""

    kind = sessions_decode.ShortExport


class PartialExport(FaultySessions):
    """Exports leave attention out."""

    kind = sessions_decode.PartialExport


class LostIndexer(FaultySessions):
    """Restores lose the indexer's keys of one layer (bug B4)."""

    def session(self, shape: Shape) -> Session:
        """A session that loses them."""
        session = sessions.LostIndexer(self.model, shape)
        session.width = self.header.get_uint(self.header.key("attention.indexer.key_length"))
        tensors = self.anatomy(DEFAULT_MICRO_BATCH).step(1).graphs[0].tensors
        # by name and width, since the caches of a layer share their name
        named = {tensor.name for tensor in tensors if tensor.shape[0] == session.width}
        layers = [layer for layer in range(self.n_layer) if f"cache_k_l{layer}" in named]
        session.cache = f"cache_k_l{layers[len(layers) // 2]}"
        return session


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
    def writes(self, counts: Counts, arriving: Frame | None) -> dict[Port, Bytes]:
        writes = super().writes(counts, arriving)
        if writes:
            writes.popitem()
        return writes


class _StaleStage(Stage):
    _before: Frame | None = None

    def writes(self, counts: Counts, arriving: Frame | None) -> dict[Port, Bytes]:
        before, self._before = self._before, arriving
        same_shape = (
            before is not None and arriving is not None and [f.size for f in before] == [f.size for f in arriving]
        )
        return super().writes(counts, before if same_shape else arriving)


class StaleFrame(Subject):
    """A stage is given the frame of the step before."""

    def stage(self, anatomy: Anatomy, start: int, end: int) -> Stage:
        """A stage that runs behind."""
        return _StaleStage(anatomy, self.session(anatomy.shape), start, end)


class _WholeModelStage(Stage):
    def decode(
        self,
        tokens: Tokens,
        position: int,
        sequence: int,
        arriving: Frame | None = None,
        leaving: Sequence[int] = (),
    ) -> tuple[Logits, dict[int, Frame]]:
        if leaving:
            return super().decode(tokens, position, sequence, arriving, leaving)
        return self.session.decode(tokens, position, sequence), {}


class WholeModel(Subject):
    """The last stage is not fed at all: it runs the whole model on the true tokens, which proves nothing about a split."""

    def stage(self, anatomy: Anatomy, start: int, end: int) -> Stage:
        """A stage that cheats."""
        return _WholeModelStage(anatomy, self.session(anatomy.shape), start, end)


class HalfWire(Subject):
    """The wire is f16 whatever was asked."""

    def carry(self, values: Array, wire: WireType) -> Array:
        """Halve."""
        del wire
        return super().carry(values, WireType.F16)


class LeakyIndex(Subject):
    """A duplicate record leaks (H1)."""

    def index(self, release: Callable[[Any], None]) -> RadixIndex[Any]:
        """An index that leaks."""
        return indexes.LeakyIndex(release)


class ForgetfulIndex(Subject):
    """Replacing forgets borrowers (H1)."""

    def index(self, release: Callable[[Any], None]) -> RadixIndex[Any]:
        """An index that forgets."""
        return indexes.ForgetfulIndex(release)


class OvershootingIndex(Subject):
    """Lookups return prefixes that are not."""

    def index(self, release: Callable[[Any], None]) -> RadixIndex[Any]:
        """An index that overshoots."""
        return indexes.OvershootingIndex(release)


class LyingHeader(Subject):
    """The metadata say that every layer is attention, as a reader does that stops at the first layer's value."""

    def __init__(self, model: Model, header: Header, expectations: Expectations, threads: int) -> None:
        super().__init__(model, header, expectations, threads)
        lie = {header.key("attention.head_count_kv"): 2, header.key("full_attention_interval"): 1}
        self.header = dataclasses.replace(header, metadata={**header.metadata, **lie})


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
