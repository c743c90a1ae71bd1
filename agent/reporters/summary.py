"""The table at the end of a certification."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.header.text import printable
from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import Receipt
from agent.reporters.live import MARKS


def print_summary(console: Console, receipts: tuple[Receipt, ...], folder: Path, seconds: float) -> None:
    """Print a row a leg, then every problem, then what was counted and where the receipts are."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("family", no_wrap=True)
    table.add_column("architecture", no_wrap=True)
    table.add_column("layers", justify="right")
    table.add_column("state", overflow="fold")
    table.add_column("cuts", justify="right")
    table.add_column("lanes", no_wrap=True)
    table.add_column("compared", justify="right")
    table.add_column("seconds", justify="right")
    for receipt in receipts:
        table.add_row(*_row(receipt))
    console.print(table)

    for receipt in receipts:
        for problem, lanes in problems_of(receipt).items():
            mark, style = MARKS[lanes[0].status]
            where = lanes[0].lane if len(lanes) == 1 else f"{len(lanes)} lanes"
            console.print(Text(f"{mark} {receipt.leg}: {where}: {problem}", style=style))
    counts = Counter(receipt.status for receipt in receipts)
    words = ", ".join(
        f"{counts[status]} {status}" for status in (Status.PASS, Status.FAIL, Status.INFRA) if counts[status]
    )
    where = ", ".join(
        sorted({f"{receipt.subject.kind} on {receipt.device.get('name', 'no device')}" for receipt in receipts})
    )
    console.print(f"\n{words}; {where}, {seconds:.1f} s; receipts in {folder}")


def problems_of(receipt: Receipt) -> dict[str, list[LaneResult]]:
    """Every problem once, at most five a lane, with the lanes that have it."""
    found: dict[str, list[LaneResult]] = {}
    for lane in receipt.lanes:
        for problem in lane.problems[:5]:
            found.setdefault(problem, []).append(lane)
    return found


def _row(receipt: Receipt) -> list[str | Text]:
    facts: dict[str, object] = {}
    for lane in receipt.lanes:
        if lane.lane == "inspect":
            facts = dict(lane.measurements)
    marks = Text.assemble(*((mark, style) for lane in receipt.lanes for mark, style in [MARKS[lane.status]]))
    legal = facts.get("legal_cuts", [])
    return [
        str(receipt.family["family"]),
        printable(receipt.subject.architecture or str(receipt.family["arch"])),
        str(facts.get("layers", "?")),
        shorten_state(str(facts.get("state", "?"))),
        str(len(legal)) if isinstance(legal, list) and facts else "?",
        marks,
        str(receipt.comparisons),
        f"{receipt.seconds:.1f}",
    ]


def shorten_state(state: str) -> str:
    """``R,R,R,A,A`` as ``3R 2A``; long alternations are cut."""
    runs: list[tuple[str, int]] = []
    if "?" in state:
        return "?"
    for kind in state.split(","):
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    words = [f"{count}{kind}" for kind, count in runs]
    limit = 7
    return " ".join(words) if len(words) <= limit else " ".join(words[: limit - 1]) + " …"
