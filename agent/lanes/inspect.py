"""`inspect`: the header reads in bounds, says what the row says, and three independent readings of the layers agree."""

from __future__ import annotations

from dataclasses import dataclass

from agent.header.architectures import LOOPED
from agent.header.layers import layer_kinds_from_metadata, layer_kinds_from_tensors, period
from agent.header.reader import Header
from agent.header.state_size import kv_owners
from agent.lanes.cuts import middle_cut, third_cuts
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject
from agent.layer_kind import LayerKind

_BY_STATE = {"dense": False, "looped": False, "recurrent": True, "hybrid": True}
"""Whether models of a shape keep recurrent state; those of the other shapes may or may not."""


@dataclass(frozen=True, kw_only=True)
class Params:
    """This lane has none."""


def run(subject: Subject, _params: Params) -> LaneResult:
    """Check the header against the row, the graph and llama.cpp's own view."""
    findings = Findings("inspect")
    header, facts, row = subject.header, subject.model.facts, subject.expectations.family
    findings.expect(
        header.architecture == row.arch,
        f"general.architecture is {header.architecture!r}, the row {row.family} says {row.arch!r}",
    )
    findings.expect(
        header.architecture == facts.architecture, f"llama.cpp reads the architecture as {facts.architecture!r}"
    )

    graph = subject.contract.state
    _compare(findings, "metadata", kinds_with_own_state(header), graph)
    _compare(findings, "tensor names", layer_kinds_from_tensors(header)[: subject.n_layer], _of_tensors(header, graph))
    has_state = any(kind.recurrent for kind in graph)
    findings.expect(
        has_state == (facts.recurrent or facts.hybrid),
        f"the graph {'keeps' if has_state else 'keeps no'} recurrent state, llama.cpp calls the model "
        f"{'recurrent' if facts.recurrent else 'hybrid' if facts.hybrid else 'neither recurrent nor hybrid'}",
    )

    _expect_shape(findings, subject, graph)
    legal = subject.contract.legal_cuts
    findings.expect(bool(legal), "no cut is legal, so the model cannot be split")
    findings.measurements |= {
        "layers": subject.n_layer,
        "width": facts.n_embd,
        "state": ",".join(graph),
        "period": period(graph),
        "legal_cuts": list(legal),
        "split": middle_cut(subject.contract) if legal else None,
        "chain": third_cuts(subject.contract) if legal else None,
        "cache": subject.policy(graph),
    }
    return findings.result(f"{header.architecture}, {subject.n_layer} layers, {len(legal)} legal cuts")


def _expect_shape(findings: Findings, subject: Subject, graph: tuple[LayerKind, ...]) -> None:
    """The row's shape decides which lanes are owed, so a wrong one would leave some of them out."""
    row, header = subject.expectations.family, subject.header
    has_state, loops = any(kind.recurrent for kind in graph), header.architecture in LOOPED
    keeps = "keeps recurrent state" if has_state else "keeps no recurrent state"
    if row.shape in _BY_STATE:
        findings.expect(
            _BY_STATE[row.shape] == has_state, f"the row {row.family} is {row.shape}, and the graph {keeps}"
        )
    runs = "runs its blocks more than once" if loops else "runs each block once"
    findings.expect((row.shape == "looped") == loops, f"the row {row.family} is {row.shape}, and the model {runs}")


def _of_tensors(header: Header, graph: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    """What the names of tensors can tell: a layer that attends to another's keys has attention tensors all the same."""
    kinds = layer_kinds_from_metadata(header)
    return graph if kinds is None else kinds


def kinds_with_own_state(header: Header) -> tuple[LayerKind, ...] | None:
    """The kinds of the layers by what each keeps itself: attention over the keys of another layer keeps nothing."""
    kinds = layer_kinds_from_metadata(header)
    if kinds is None:
        return None
    owners = kv_owners(header)
    return tuple(
        LayerKind.NEITHER if kind is LayerKind.ATTENTION and not owns else kind
        for kind, owns in zip(kinds, owners, strict=True)
    )


def _compare(
    findings: Findings, source: str, kinds: tuple[LayerKind, ...] | None, graph: tuple[LayerKind, ...]
) -> None:
    if kinds is None:
        findings.expect(False, f"the {source} say nothing certain about the layers, so no state may be reused")
        return
    findings.expect(len(kinds) == len(graph), f"the {source} describe {len(kinds)} layers, the graph {len(graph)}")
    for layer, (said, seen) in enumerate(zip(kinds, graph, strict=False)):
        findings.expect(said == seen, f"layer {layer} is {said} by its {source} and {seen} in the graph")
