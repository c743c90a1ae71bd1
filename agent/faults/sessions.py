"""Sessions whose memory does one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.engine.library import GgmlTensor
from agent.engine.model import Model
from agent.engine.session import Logits, Session, Shape, Tap, Tokens
from agent.faults.taps import CacheTap, NoiseTap, flip_byte, zero
from agent.lanes.restored import RECORDED

_SPARE = 3


class ReachingSession(Session):
    """Does its damage inside of a graph, so that its nodes must be within reach."""

    def __init__(self, model: Model, shape: Shape) -> None:
        super().__init__(model, replace(shape, tapped=True))


class DamagedRestore(ReachingSession):
    """Damages a cache tensor after a state was imported into, or lent to, a sequence."""

    cache: str = ""
    width: int | None = None
    _target: int | None = None

    def import_state(self, state: bytes, sequence: int, flags: int = 0) -> None:
        """Import, and remember where the damage goes."""
        super().import_state(state, sequence, flags)
        self._target = sequence

    def copy_sequence(self, source: int, target: int) -> None:
        """Lend, and remember where the damage goes."""
        super().copy_sequence(source, target)
        self._target = target

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """The first decode after a restore meets the damage."""
        if self._target is None:
            return super().decode(tokens, position, sequence, tap)
        target, self._target = self._target, None
        return super().decode(tokens, position, sequence, CacheTap(self.cache, self.width, self.damage(target), tap))

    def damage(self, target: int) -> Callable[[int], None]:
        """What is done to the cache tensor of the target sequence."""
        raise NotImplementedError


class DroppedRecurrentState(DamagedRestore):
    """The state of one recurrent layer is lost."""

    def damage(self, target: int) -> Callable[[int], None]:
        """Zero the whole tensor, whatever the target: recurrent cells of other sequences are not used by then."""
        del target
        return zero


class FlippedKvByte(DamagedRestore):
    """One byte of a restored KV page is wrong, in a cell that every window still sees.

    Attributes:
        window: tokens that the narrowest attention sees; a cache of windows holds no more cells once it is restored.
    """

    window: int | None = None

    def damage(self, target: int) -> Callable[[int], None]:
        """Flip the high byte of the first element of the last such cell of the target's stream."""
        cell = self.last_position(target)
        if self.window:
            cell = min(cell, self.window - 1)

        def flip(pointer: int) -> None:
            strides = GgmlTensor.from_address(pointer).nb
            element = strides[0]
            flip_byte(pointer, target * strides[2] + cell * strides[1] + element - 1)

        return flip


class LostIndexer(DamagedRestore):
    """The keys of a layer's indexer are lost: of the tensors of the same name, the one of the indexer's width."""

    def damage(self, target: int) -> Callable[[int], None]:
        """Zero the whole tensor, whatever the target."""
        del target
        return zero


class WrongSequence(Session):
    """Exports and lends another sequence than the one asked for, of the same length and with other tokens in it."""

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Whatever is recorded is recorded backwards in a spare sequence first."""
        if sequence == RECORDED:
            super().decode(tokens[::-1].copy(), position, _SPARE)
        return super().decode(tokens, position, sequence, tap)

    def export_state(self, sequence: int, flags: int = 0) -> bytes:
        """Export the spare."""
        return super().export_state(_SPARE if sequence == RECORDED else sequence, flags)

    def copy_sequence(self, source: int, target: int) -> None:
        """Lend the spare."""
        super().copy_sequence(_SPARE if source == RECORDED else source, target)


class LazyImport(Session):
    """Says that it imported a state and does nothing."""

    def import_state(self, state: bytes, sequence: int, flags: int = 0) -> None:
        """Nothing."""


class ShiftedPosition(Session):
    """Goes on one position too far after a restore."""

    _shift = 0

    def import_state(self, state: bytes, sequence: int, flags: int = 0) -> None:
        """Import, and be off by one from then on."""
        super().import_state(state, sequence, flags)
        self._shift = 1

    def copy_sequence(self, source: int, target: int) -> None:
        """Lend, and be off by one from then on."""
        super().copy_sequence(source, target)
        self._shift = 1

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode one position further."""
        return super().decode(tokens, position + self._shift, sequence, tap)


class LateRecord(Session):
    """Records a sequence that was itself restored before the last token of its answer is in it: another one is there."""

    def __init__(self, model: Model, shape: Shape) -> None:
        super().__init__(model, shape)
        self._restored: set[int] = set()
        self._before: dict[int, tuple[bytes, Tokens, int]] = {}

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode, and remember what a restored sequence was before a single token."""
        self._before.pop(sequence, None)
        if sequence in self._restored and len(tokens) == 1:
            other = (tokens + 1) % self.model.facts.n_vocab
            self._before[sequence] = super().export_state(sequence), other, position
        return super().decode(tokens, position, sequence, tap)

    def export_state(self, sequence: int, flags: int = 0) -> bytes:
        """Export, too early."""
        self._lose_last(sequence)
        return super().export_state(sequence, flags)

    def copy_sequence(self, source: int, target: int) -> None:
        """Lend, too early."""
        self._lose_last(source)
        super().copy_sequence(source, target)
        self._restored.add(target)

    def import_state(self, state: bytes, sequence: int, flags: int = 0) -> None:
        """Import, and know it."""
        super().import_state(state, sequence, flags)
        self._restored.add(sequence)

    def remove_sequence(self, sequence: int) -> None:
        """Forget that it was restored."""
        super().remove_sequence(sequence)
        self._restored.discard(sequence)
        self._before.pop(sequence, None)

    def _lose_last(self, sequence: int) -> None:
        if sequence in self._before:
            before, other, position = self._before.pop(sequence)
            super().import_state(before, sequence)
            super().decode(other, position, sequence)


class Noisy(ReachingSession):
    """A node of the graph comes out wrong."""

    ordinal = 0

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Disturb it."""
        return super().decode(tokens, position, sequence, NoiseTap(self.ordinal, tap))
