"""Radix indexes with the faults that the issue describes in the product's (H1), and one that looks up wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.radix.index import Entry, RadixIndex


class LeakyIndex(RadixIndex[Any]):
    """Two slots that record one prefix at once both insert, and the state that is replaced is never released."""

    def find(self, tokens: Sequence[int]) -> Entry[Any] | None:
        """Nothing is there yet, as each of two racing slots sees it."""
        del tokens
        return None

    def _detach(self, entry: Entry[Any]) -> None:
        entry.detached = True


class ForgetfulIndex(RadixIndex[Any]):
    """Replacing an entry forgets its borrowers: their state is released while they use it, and again when they come back."""

    def _detach(self, entry: Entry[Any]) -> None:
        entry.detached = True
        self._release(entry.value)


class OvershootingIndex(RadixIndex[Any]):
    """A lookup follows an edge of which only the beginning fits, and returns what lies behind it."""

    def _longest(self, tokens: tuple[int, ...]) -> Entry[Any] | None:
        entry = super()._longest(tokens)
        for length in range(len(tokens), 0, -1):
            for node in self._nodes():
                if node.entry is not None and node.edge[: length - 1] == tokens[: length - 1] and length > 1:
                    return node.entry
        return entry
