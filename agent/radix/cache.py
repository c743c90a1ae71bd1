"""The prefix cache over one session: what is recorded is a native sequence (resident) or bytes (KV pages and recurrent state)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic

from agent.engine.session import Session
from agent.radix.index import Entry, RadixIndex, Value
from agent.radix.pool import SequencePool

# makes an empty index, given what releases a value
MakeIndex = Callable[[Callable[[Any], None]], RadixIndex[Any]]


class _IndexedCache(Generic[Value]):
    """What both caches do alike: the index decides what is borrowed, and what goes first."""

    _index: RadixIndex[Value]

    def give_back(self, entry: Entry[Any]) -> None:
        """End a borrow."""
        self._index.give_back(entry)

    def evict(self) -> bool:
        """Drop the least recently used prefix that nobody borrows; False where there is none."""
        return self._index.evict()

    def clear(self) -> None:
        """Forget everything."""
        self._index.clear()


class ResidentCache(_IndexedCache[int]):
    """Values are sequences of the same session, which share cells with the one that they were recorded from."""

    def __init__(self, session: Session, pool: SequencePool, make_index: MakeIndex) -> None:
        self._session = session
        self._pool = pool
        self._index = make_index(self._free)

    def record(self, tokens: Sequence[int], sequence: int) -> bool:
        """A prefix that is recorded already is left as it is: a second copy would cost a sequence for nothing."""
        if self._index.find(tokens) is not None:
            return True
        kept = self._pool.take()
        while kept is None and self._index.evict():
            kept = self._pool.take()
        if kept is None:
            return False
        self._session.copy_sequence(sequence, kept)
        self._index.insert(tokens, kept)
        return True

    def replace(self, tokens: Sequence[int], sequence: int) -> bool:
        """Record again, whatever is there; borrowers of the old entry keep it."""
        kept = self._pool.take()
        if kept is None:
            return False
        self._session.copy_sequence(sequence, kept)
        self._index.insert(tokens, kept)
        return True

    def restore(self, tokens: Sequence[int], session: Session, sequence: int) -> Entry[Any] | None:
        """Share the cells of the recorded sequence."""
        entry = self._index.borrow(tokens)
        if entry is not None:
            session.copy_sequence(entry.value, sequence)
        return entry

    @property
    def held(self) -> int:
        """Sequences taken from the pool."""
        return self._pool.in_use

    def _free(self, sequence: int) -> None:
        self._session.remove_sequence(sequence)
        self._pool.put_back(sequence)


class SnapshotCache(_IndexedCache[bytes]):
    """Values are exported states, which can be imported into any session of the model."""

    def __init__(self, session: Session, limit: int, make_index: MakeIndex) -> None:
        self._session = session
        self._limit = limit
        self._held = 0
        self._index = make_index(self._free)

    def record(self, tokens: Sequence[int], sequence: int) -> bool:
        """Export the state, unless the prefix is recorded already."""
        return self._index.find(tokens) is not None or self.replace(tokens, sequence)

    def replace(self, tokens: Sequence[int], sequence: int) -> bool:
        """Record again, whatever is there; borrowers of the old entry keep it."""
        while self._held >= self._limit:
            if not self._index.evict():
                return False
        self._held += 1
        self._index.insert(tokens, self._session.export_state(sequence))
        return True

    def restore(self, tokens: Sequence[int], session: Session, sequence: int) -> Entry[Any] | None:
        """Import the recorded state."""
        entry = self._index.borrow(tokens)
        if entry is not None:
            session.import_state(entry.value, sequence)
        return entry

    @property
    def held(self) -> int:
        """Snapshots that are kept, for lookups or for a borrower."""
        return self._held

    def _free(self, _state: bytes) -> None:
        self._held -= 1


PrefixCache = ResidentCache | SnapshotCache
