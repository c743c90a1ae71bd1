"""The receipt of a leg while it runs: on the disk from the first moment, with each lane as it ends.

So a leg that is lost is not silent, and one that was interrupted can go on where it was.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent.errors import AgentError
from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import FILE_NAME, Receipt, TestedSubject, read_receipt, write_receipt
from agent.runner.supervise import Loaded

# ended by the model, the pin and the lane alone; what the runner spoilt is tried again
_ENDED = (Status.PASS, Status.FAIL, Status.NOT_APPLICABLE)


class Draft:
    """A receipt that is written again whenever more is known."""

    def __init__(self, receipt: Receipt, folder: Path) -> None:
        """Write `receipt`, whose lanes did not run yet, to `folder`."""
        self._folder = folder
        self._lock = threading.Lock()
        self.receipt = receipt
        write_receipt(receipt, folder)

    def describe(self, subject: TestedSubject) -> None:
        """The subject is known."""
        self._write(replace(self.receipt, subject=subject))

    def load(self, loaded: Loaded) -> None:
        """The engine is loaded, and the device opened."""
        with self._lock:
            self.receipt = replace(
                self.receipt,
                engine=loaded.engine,
                device=loaded.device,
                nodes_by_device=loaded.nodes_by_device,
            )

    def finish(self, result: LaneResult) -> None:
        """A lane ended."""
        lanes = tuple(result if lane.lane == result.lane else lane for lane in self.receipt.lanes)
        self._write(replace(self.receipt, lanes=lanes))

    def _write(self, receipt: Receipt) -> None:
        with self._lock:
            self.receipt = receipt
            write_receipt(receipt, self._folder)


def read_earlier(folder: Path, leg: str) -> Receipt | None:
    """The receipt that an earlier run left for a leg; None where there is none that can be read."""
    try:
        return read_receipt(folder / leg / FILE_NAME)
    except AgentError:
        return None


def ended_lanes(earlier: Receipt, now: Receipt) -> Mapping[str, LaneResult]:
    """Results of `earlier` that hold for `now` as well, by lane; a fail is kept as a pass is, so that none is lost.

    Nothing is kept unless both are of the same plan, leg, subject, agent, machine and CI run. Engine and device are known only
    once a child has loaded them: see `same_engine`.
    """
    if any(
        getattr(earlier, name) != getattr(now, name)
        for name in ("plan", "leg", "event", "build_key", "subject", "agent", "runner", "run")
    ):
        return {}
    owed = {lane.lane for lane in now.lanes}
    return {lane.lane: lane for lane in earlier.lanes if lane.lane in owed and lane.status in _ENDED}


def same_engine(earlier: Receipt, now: Receipt) -> bool:
    """True if both ran on the same libraries and device."""
    return bool(now.engine) and (earlier.engine, earlier.device) == (now.engine, now.device)


def kept(results: Sequence[LaneResult], begun: str) -> tuple[LaneResult, ...]:
    """Results of a run that began at `begun`, with a note that says so."""
    note = f"kept from the run that began at {begun} and was interrupted"
    return tuple(result if note in result.notes else replace(result, notes=(*result.notes, note)) for result in results)
