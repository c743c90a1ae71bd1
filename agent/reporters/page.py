"""Receipts as one page that needs no network: who passed what, where each model may be cut, and what took the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import Receipt
from matrixgen.files import write_atomically

PAGE_NAME = "report.html"

_TEMPLATE = "page.html.j2"
_MARKS = {
    Status.PASS: "✓",
    Status.FAIL: "✗",
    Status.INFRA: "!",
    Status.UNSUPPORTED: "u",
    Status.NOT_APPLICABLE: "-",
}


@dataclass(frozen=True)
class Layer:
    """One box of a model's strip: its kind, and what the cut before it is (``legal``, ``illegal`` or empty for the first)."""

    index: int
    kind: str
    cut: str


@dataclass(frozen=True)
class WireRow:
    """What one wire type did."""

    name: str
    policy: str
    cuts: int
    changed: int
    error: str
    peak: str


@dataclass(frozen=True)
class Row:
    """A leg as the page shows it."""

    receipt: Receipt
    lanes: Mapping[str, LaneResult]
    layers: tuple[Layer, ...]
    wires: tuple[WireRow, ...]
    crossing: str
    seconds: float


def write_page(receipts: Sequence[Receipt], path: Path) -> None:
    """Write the page, whole or not at all."""
    write_atomically(path, render(receipts))


def render(receipts: Sequence[Receipt]) -> str:
    """The page as HTML. Whatever a receipt says is text, never markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("agent.reporters", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    rows = [
        _row(receipt) for receipt in sorted(receipts, key=lambda receipt: (receipt.status == Status.PASS, receipt.leg))
    ]
    lanes = list(dict.fromkeys(lane for row in rows for lane in row.lanes))
    return environment.get_template(_TEMPLATE).render(
        rows=rows,
        lanes=lanes,
        marks=_MARKS,
        counts=Counter(str(row.receipt.status) for row in rows),
        longest=max((row.seconds for row in rows), default=0.0),
        seconds_by_lane={lane: sum(row.lanes[lane].seconds for row in rows if lane in row.lanes) for lane in lanes},
        comparisons=sum(row.receipt.comparisons for row in rows),
        first=next((row.receipt for row in rows if row.receipt.engine), rows[0].receipt if rows else None),
    )


def _row(receipt: Receipt) -> Row:
    lanes = {lane.lane: lane for lane in receipt.lanes}
    inspected = _measurements(lanes, "inspect")
    return Row(
        receipt=receipt,
        lanes=lanes,
        layers=_layers(str(inspected.get("state", "")), set(inspected.get("legal_cuts", ()))),
        wires=tuple(_wire(name, facts) for name, facts in _measurements(lanes, "dtype-matrix").items()),
        crossing=" + ".join(_measurements(lanes, "contract").get("frontier", ())),
        seconds=receipt.seconds,
    )


def _measurements(lanes: Mapping[str, LaneResult], lane: str) -> Mapping[str, Any]:
    return lanes[lane].measurements if lane in lanes else {}


def _layers(state: str, legal: set[int]) -> tuple[Layer, ...]:
    kinds = state.split(",") if state else []
    return tuple(
        Layer(index, kind, "" if index == 0 else "legal" if index in legal else "illegal")
        for index, kind in enumerate(kinds)
    )


def _wire(name: str, facts: Mapping[str, Any]) -> WireRow:
    return WireRow(
        name=name,
        policy=str(facts["policy"]),
        cuts=int(facts["cuts"]),
        changed=int(facts["cuts_with_other_tokens"]),
        error=_short(facts["normalised_error"]),
        peak=_short(facts["peak_activation"]),
    )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)
