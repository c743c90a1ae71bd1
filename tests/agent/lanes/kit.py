"""Contracts made by hand or at random."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import strategies as st

from agent.engine.contract import Contract, Crossing, Cut
from agent.layer_kind import LayerKind

A, R, B, N = LayerKind.ATTENTION, LayerKind.RECURRENT, LayerKind.BOTH, LayerKind.NEITHER
KINDS = (A, R, B, N)


def contract(kinds: Sequence[LayerKind], illegal: Collection[int] = (), wide: Collection[int] = ()) -> Contract:
    """A contract of layers of these kinds; `illegal` cuts read a cache, at `wide` cuts a second tensor crosses."""
    return Contract(
        state=tuple(kinds),
        caches=tuple(("k",) if kind is A else ("r",) if kind is R else () for kind in kinds),
        cuts=tuple(
            Cut(
                layer,
                tuple(Crossing(f"t{number}-{layer - 1}", layer - 1, "f32", 8) for number in range(1 + (layer in wide))),
                False,
                ("cache_k_l0",) if layer in illegal else (),
            )
            for layer in range(1, len(kinds))
        ),
    )


@st.composite
def contracts(draw: st.DrawFn, *, min_legal: int = 1) -> Contract:
    """Two to forty layers: periodic or not, with some cuts illegal and some wide."""
    size = draw(st.integers(max(2, min_legal + 1), 40))
    pattern = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8))
    kinds = (
        (pattern * size)[:size]
        if draw(st.booleans())
        else draw(st.lists(st.sampled_from(KINDS), min_size=size, max_size=size))
    )
    every = list(range(1, size))
    legal = draw(st.sets(st.sampled_from(every), min_size=min_legal))
    if draw(st.booleans()):
        legal = set(every)
    return contract(kinds, set(every) - legal, draw(st.sets(st.sampled_from(every))))
