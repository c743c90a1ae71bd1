"""Seeded faults against lanes and architectures: a lane that does not notice a fault that it must notice is a defect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.contracts import RecordedContract
from agent.faults.catalog import FAULTS
from agent.lanes.result import LaneResult, Status
from agent.runner.job import Job
from agent.runner.supervise import supervise
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from matrixgen.leg import Leg

_TIMEOUT_SECONDS = 600

# A fault that is there is there in a short run: fewer steps and repeats than a battery, the same checks.
_SHORT: Mapping[str, Any] = {
    "decode_steps": 2,
    "hit_repeats": 1,
    "repeats": 3,
    "threads": [],
    "micro_batches": [],
    "wires": ["f32"],
    "cuts": "classes",
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One fault on one leg.

    Attributes:
        caught: lanes that failed, as they must.
        missed: lanes that did not; each one is a defect.
        applies: False where the model cannot show the fault or owes none of its lanes.
    """

    leg: Leg
    fault: str
    caught: tuple[str, ...]
    missed: tuple[str, ...]
    applies: bool


def run_trials(
    legs: Sequence[Leg],
    faults: Iterable[str],
    *,
    twins: Path,
    contracts: Mapping[str, RecordedContract],
    jobs: int,
    on_trial: Callable[[Trial], None],
) -> tuple[Trial, ...]:
    """Run every fault on every leg, `jobs` at a time; `on_trial` is told of each as it ends."""

    def attempt(pair: tuple[Leg, str]) -> Trial:
        trial = _try(*pair, twins=twins, contracts=contracts)
        on_trial(trial)
        return trial

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return tuple(pool.map(attempt, [(leg, fault) for leg in legs for fault in faults]))


def _try(leg: Leg, fault: str, *, twins: Path, contracts: Mapping[str, RecordedContract]) -> Trial:
    must_catch = FAULTS[fault].lanes
    lanes = tuple((lane.name, _shorten(lane.params)) for lane in leg.lanes if lane.name in must_catch)
    architecture = leg.family.arch or ""
    if not lanes or (fault == "frontier-changed" and architecture not in contracts):
        return Trial(leg=leg, fault=fault, caught=(), missed=(), applies=False)
    job = Job(
        model=build_twin(recipe_for(architecture, family=leg.family.family), twins),
        device="cpu",
        threads=1,
        family=leg.family,
        random_weights=True,
        recorded=contracts.get(architecture),
        lanes=lanes,
        fault=fault,
    )
    results = supervise(job, _Silent(), _TIMEOUT_SECONDS).results
    if all(result.status is Status.NOT_APPLICABLE for result in results):
        return Trial(leg=leg, fault=fault, caught=(), missed=(), applies=False)
    caught = tuple(result.lane for result in results if result.status is Status.FAIL)
    missed = tuple(f"{result.lane} ({result.status})" for result in results if result.status is not Status.FAIL)
    return Trial(leg=leg, fault=fault, caught=caught, missed=missed, applies=True)


def _shorten(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _SHORT.get(name, value) for name, value in params.items()}


class _Silent:
    def lane_started(self, lane: str) -> None:
        """Nothing."""

    def lane_finished(self, result: LaneResult) -> None:
        """Nothing."""
