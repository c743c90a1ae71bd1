"""The radix index: longest-prefix lookup, branches, replacement while borrowed, eviction.

It is the smallest index that has all the operations of the product's unified radix cache, so that they can be run against
llama.cpp. Values are owned by the index from `insert` until `release` is called on them, exactly once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agent.errors import CacheUnbalanced

Value = TypeVar("Value")


@dataclass(eq=False)
class Entry(Generic[Value]):
    """A recorded prefix.

    Attributes:
        length: tokens of the prefix.
        value: its state.
        borrowers: who uses it now; it is not released before they gave it back.
        detached: no longer found by lookups.
        used: order of the last use; the smallest is evicted first.
    """

    length: int
    value: Value
    borrowers: int = 0
    detached: bool = False
    used: int = 0


@dataclass(eq=False)
class _Node(Generic[Value]):
    """Tokens of the edge that leads here, the entry that ends here, and the edges that go on."""

    edge: tuple[int, ...]
    entry: Entry[Value] | None = None
    children: dict[int, _Node[Value]] = field(default_factory=dict)


class RadixIndex(Generic[Value]):
    """Prefixes by token. `release` is called once for every value that the index no longer needs."""

    def __init__(self, release: Callable[[Value], None]) -> None:
        self._root: _Node[Value] = _Node(())
        self._release = release
        self._clock = itertools.count(1)

    def insert(self, tokens: Sequence[int], value: Value) -> Entry[Value]:
        """Record `value` for exactly `tokens`. An older entry is replaced: it lives on until its borrowers gave it back."""
        node = self._node_for(tuple(tokens))
        if node.entry is not None:
            self._detach(node.entry)
        node.entry = Entry(len(tokens), value, used=next(self._clock))
        return node.entry

    def find(self, tokens: Sequence[int]) -> Entry[Value] | None:
        """The entry of exactly `tokens`."""
        entry = self._longest(tuple(tokens))
        return entry if entry is not None and entry.length == len(tokens) else None

    def borrow(self, tokens: Sequence[int]) -> Entry[Value] | None:
        """The entry of the longest recorded prefix of `tokens`; the caller must `give_back` it."""
        entry = self._longest(tuple(tokens))
        if entry is not None:
            entry.borrowers += 1
            entry.used = next(self._clock)
        return entry

    def give_back(self, entry: Entry[Value]) -> None:
        """End a borrow.

        Raises:
            CacheUnbalanced: nobody borrows it.
        """
        if entry.borrowers == 0:
            raise CacheUnbalanced("a prefix was given back more often than it was borrowed")
        entry.borrowers -= 1
        if entry.detached and entry.borrowers == 0:
            self._release(entry.value)

    def evict(self) -> bool:
        """Drop the least recently used entry that nobody borrows; False where there is none."""
        idle = [node for node in self._nodes() if node.entry is not None and node.entry.borrowers == 0]
        if not idle:
            return False
        node = min(idle, key=lambda node: node.entry.used if node.entry else 0)
        if node.entry is not None:
            self._detach(node.entry)
            node.entry = None
        return True

    def clear(self) -> None:
        """Drop all entries; borrowed ones are released when they come back."""
        for node in self._nodes():
            if node.entry is not None:
                self._detach(node.entry)
        self._root = _Node(())

    def __len__(self) -> int:
        return sum(node.entry is not None for node in self._nodes())

    def _detach(self, entry: Entry[Value]) -> None:
        entry.detached = True
        if entry.borrowers == 0:
            self._release(entry.value)

    def _longest(self, tokens: tuple[int, ...]) -> Entry[Value] | None:
        node, best = self._root, self._root.entry
        while tokens:
            child = node.children.get(tokens[0])
            if child is None or tokens[: len(child.edge)] != child.edge:
                break
            node, tokens = child, tokens[len(child.edge) :]
            best = node.entry or best
        return best

    def _node_for(self, tokens: tuple[int, ...]) -> _Node[Value]:
        node = self._root
        while tokens:
            child = node.children.get(tokens[0])
            if child is None:
                child = _Node(tokens)
                node.children[tokens[0]] = child
                return child
            shared = _shared_length(child.edge, tokens)
            if shared < len(child.edge):
                child = self._split(node, child, shared)
            node, tokens = child, tokens[shared:]
        return node

    @staticmethod
    def _split(parent: _Node[Value], child: _Node[Value], at: int) -> _Node[Value]:
        middle: _Node[Value] = _Node(child.edge[:at])
        child.edge = child.edge[at:]
        middle.children[child.edge[0]] = child
        parent.children[middle.edge[0]] = middle
        return middle

    def _nodes(self) -> Iterator[_Node[Value]]:
        pending = [self._root]
        while pending:
            node = pending.pop()
            yield node
            pending += node.children.values()


def _shared_length(first: Sequence[int], second: Sequence[int]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
