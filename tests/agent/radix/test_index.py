"""The reference radix index, held against a plain dictionary of prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import CacheUnbalanced
from agent.radix.index import RadixIndex
from agent.radix.pool import SequencePool

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)


@given(st.lists(TOKENS, max_size=12), TOKENS)
def test_a_lookup_finds_the_longest_recorded_prefix(recorded: list[tuple[int, ...]], wanted: tuple[int, ...]) -> None:
    """The entry found is that of the longest prefix in a plain set, and none where there is no prefix."""
    index: RadixIndex[tuple[int, ...]] = RadixIndex(lambda _value: None)
    for tokens in recorded:
        index.insert(tokens, tokens)
    prefixes = [tokens for tokens in recorded if wanted[: len(tokens)] == tokens]
    entry = index.borrow(wanted)
    assert (entry.value if entry else None) == max(prefixes, key=len, default=None)
    assert len(index) == len(set(recorded))


@given(st.lists(st.tuples(st.sampled_from(["insert", "borrow", "back", "evict"]), TOKENS), max_size=40))
def test_every_value_is_released_exactly_once(steps: list[tuple[str, tuple[int, ...]]]) -> None:
    """Whatever is done in whatever order: nothing borrowed is released, and in the end everything is, once."""
    released: list[int] = []
    index: RadixIndex[int] = RadixIndex(released.append)
    borrowed = []
    made = 0
    for action, tokens in steps:
        if action == "insert":
            index.insert(tokens, made)
            made += 1
        elif action == "borrow" and (entry := index.borrow(tokens)) is not None:
            borrowed.append(entry)
        elif action == "back" and borrowed:
            index.give_back(borrowed.pop())
        elif action == "evict":
            index.evict()
        assert not {entry.value for entry in borrowed} & set(released)
    index.clear()
    for entry in borrowed:
        index.give_back(entry)
    assert sorted(released) == list(range(made))


def test_the_least_recently_used_idle_entry_goes_first() -> None:
    """A lookup makes an entry younger; a borrowed one is never evicted."""
    released: list[str] = []
    index: RadixIndex[str] = RadixIndex(released.append)
    for tokens, value in (((1,), "old"), ((2,), "young"), ((3,), "held")):
        index.insert(tokens, value)
    held, used = index.borrow((3,)), index.borrow((1,))
    assert held is not None
    assert used is not None
    index.give_back(used)
    assert index.evict()
    assert released == ["young"]
    assert index.evict()
    assert not index.evict()
    assert released == ["young", "old"]


def test_giving_back_twice_is_an_error() -> None:
    """An entry, or a sequence, that is given back more often than it was taken is named."""
    index: RadixIndex[int] = RadixIndex(lambda _value: None)
    entry = index.insert((1,), 0)
    with pytest.raises(CacheUnbalanced, match="more often"):
        index.give_back(entry)
    pool = SequencePool(4, 5)
    taken = pool.take()
    assert taken is not None
    assert pool.in_use == 1
    pool.put_back(taken)
    with pytest.raises(CacheUnbalanced, match="twice or never"):
        pool.put_back(taken)
    with pytest.raises(CacheUnbalanced, match="twice or never"):
        pool.put_back(3)
