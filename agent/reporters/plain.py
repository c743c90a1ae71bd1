"""One line a leg, for logs and pipes."""

from __future__ import annotations

import threading
from typing import TextIO

from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import Receipt
from matrixgen.leg import Leg


class PlainReporter:
    """Prints a line when a leg ends; the problems follow below the table."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def leg_started(self, leg: Leg) -> None:
        """Nothing."""

    def lane_started(self, leg: Leg, lane: str) -> None:
        """Nothing."""

    def lane_finished(self, leg: Leg, result: LaneResult) -> None:
        """Nothing."""

    def leg_finished(self, leg: Leg, receipt: Receipt) -> None:
        """A line for the leg."""
        passed = sum(lane.status is Status.PASS for lane in receipt.lanes)
        self._say(
            f"{receipt.status:<6} {leg.id}: {passed} of {len(receipt.lanes)} lanes, {receipt.comparisons} comparisons, "
            f"{receipt.seconds:.1f} s"
        )

    def _say(self, line: str) -> None:
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()


class SilentReporter:
    """Says nothing; for `--json`."""

    def leg_started(self, leg: Leg) -> None:
        """Nothing."""

    def lane_started(self, leg: Leg, lane: str) -> None:
        """Nothing."""

    def lane_finished(self, leg: Leg, result: LaneResult) -> None:
        """Nothing."""

    def leg_finished(self, leg: Leg, receipt: Receipt) -> None:
        """Nothing."""
