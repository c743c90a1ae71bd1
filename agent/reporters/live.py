"""Live progress on a terminal: a line a family, its lanes ticking."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import Receipt
from matrixgen.leg import Leg

MARKS = {
    Status.PASS: ("✓", "green"),
    Status.FAIL: ("✗", "bold red"),
    Status.INFRA: ("!", "yellow"),
    Status.UNSUPPORTED: ("u", "yellow"),
    Status.NOT_APPLICABLE: ("-", "dim"),
}
_WAITING, _RUNNING = ("·", "dim"), ("▸", "cyan")


class LiveReporter:
    """Redraws the legs that run and that ran; a context manager around the run."""

    def __init__(self, console: Console, legs: tuple[Leg, ...]) -> None:
        self._legs = legs
        self._marks: dict[str, dict[str, tuple[str, str]]] = {
            leg.id: {lane.name: _WAITING for lane in leg.lanes} for leg in legs
        }
        self._words: dict[str, Text] = {}
        self._started: set[str] = set()
        self._lock = threading.Lock()
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=8, transient=True)

    def leg_started(self, leg: Leg) -> None:
        """Show the leg."""
        with self._lock:
            self._started.add(leg.id)

    def lane_started(self, leg: Leg, lane: str) -> None:
        """Point at the lane."""
        with self._lock:
            self._marks[leg.id][lane] = _RUNNING
            self._words[leg.id] = Text(lane, style="cyan")

    def lane_finished(self, leg: Leg, result: LaneResult) -> None:
        """Tick it."""
        with self._lock:
            self._marks[leg.id][result.lane] = MARKS[result.status]

    def leg_finished(self, leg: Leg, receipt: Receipt) -> None:
        """Say how it went."""
        style = MARKS[receipt.status][1]
        with self._lock:
            self._words[leg.id] = Text(f"{receipt.status} {receipt.seconds:.1f} s", style=style)

    def _draw(self) -> Table:
        table = Table.grid(padding=(0, 2))
        with self._lock:
            for leg in self._legs:
                if leg.id not in self._started:
                    continue
                marks = Text.assemble(*((f"{mark} ", style) for mark, style in self._marks[leg.id].values()))
                table.add_row(Text(leg.id), marks, self._words.get(leg.id, Text("")))
            waiting = len(self._legs) - len(self._started)
            if waiting:
                table.add_row(Text(f"{waiting} more", style="dim"))
        return table

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
