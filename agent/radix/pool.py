"""Which sequences of a session are free: every one that is taken must come back once."""

from __future__ import annotations

from agent.errors import CacheUnbalanced


class SequencePool:
    """Sequence ids `first` to `last` of one session."""

    def __init__(self, first: int, last: int) -> None:
        self._all = range(first, last + 1)
        self._free = list(reversed(self._all))

    @property
    def in_use(self) -> int:
        """How many are taken."""
        return len(self._all) - len(self._free)

    def take(self) -> int | None:
        """A free sequence; None where all are taken."""
        return self._free.pop() if self._free else None

    def put_back(self, sequence: int) -> None:
        """Free a sequence.

        Raises:
            CacheUnbalanced: it is not one of the pool, or it is free already.
        """
        if sequence not in self._all or sequence in self._free:
            raise CacheUnbalanced(f"sequence {sequence} was given back twice or never taken")
        self._free.append(sequence)
