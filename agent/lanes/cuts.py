"""Which cuts and which stages are worth a run."""

from __future__ import annotations

from agent.engine.contract import Contract
from agent.errors import NoLegalCut
from agent.header.layers import period
from agent.layer_kind import LayerKind


def middle_cut(contract: Contract) -> int:
    """The legal cut nearest to the middle."""
    return nearest(contract, contract.n_layer / 2)


def third_cuts(contract: Contract) -> tuple[int, int] | None:
    """Two legal cuts nearest to the thirds; None where there are not two."""
    first = nearest(contract, contract.n_layer / 3)
    later = [cut for cut in contract.legal_cuts if cut > first]
    if not later:
        earlier = [cut for cut in contract.legal_cuts if cut < first]
        return (earlier[-1], first) if earlier else None
    return first, min(later, key=lambda cut: abs(cut - 2 * contract.n_layer / 3))


def nearest(contract: Contract, place: float) -> int:
    """The legal cut nearest to `place`, the lower one of two.

    Raises:
        NoLegalCut: there is none.
    """
    if not contract.legal_cuts:
        raise NoLegalCut("no cut is legal, so there are no stages to run: lane `contract` says what forbids each")
    return min(contract.legal_cuts, key=lambda cut: (abs(cut - place), cut))


def class_cuts(contract: Contract, *, offsets: bool = True) -> tuple[int, ...]:
    """A small set of legal cuts that meets every class of cut.

    The first and the last one; each distinct set of facts about a cut (kind of the layer before and after, what either
    stage holds at all, what crosses), and with them an attention-first second stage that later holds recurrent state, which
    is what bug B1 needs; and, with `offsets`, each offset of the interleaving period where there is one.
    """
    legal = contract.legal_cuts
    if not legal:
        return ()
    chosen: dict[object, int] = {"first": legal[0], "last": legal[-1]}
    interval = period(contract.state)
    for cut in legal:
        before, after = contract.state[:cut], contract.state[cut:]
        crossing = len(contract.cut(cut).frontier)
        chosen.setdefault((before[-1], after[0], frozenset(before), frozenset(after), crossing), cut)
        if offsets and interval and interval > 1:
            chosen.setdefault(("offset", cut % interval), cut)
    return tuple(sorted(set(chosen.values())))


def single_kind_stages(contract: Contract) -> tuple[tuple[int, int], ...]:
    """For a hybrid, one middle stage that holds recurrent layers only and one that holds attention only, as [start, end)."""
    stages = []
    for kind in (LayerKind.RECURRENT, LayerKind.ATTENTION):
        if len({*contract.state}) < 2:
            break
        run = next(
            (
                (start, start + 1)
                for start in contract.legal_cuts
                if start + 1 in contract.legal_cuts and contract.state[start] is kind
            ),
            None,
        )
        if run:
            stages.append(run)
    return tuple(stages)
