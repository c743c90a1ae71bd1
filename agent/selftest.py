"""Seeded faults against lanes and architectures: a lane that does not notice a fault that it must notice is a defect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.contracts import RecordedContract
from agent.faults.catalog import FAULTS
from agent.lanes.result import LaneResult, Status
from agent.runner.job import Job
from agent.runner.supervise import Loaded, supervise
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from matrixgen.leg import Leg

_TIMEOUT_SECONDS = 1800

# A fault that is there is there in a short run: fewer steps and repeats than a battery, the same checks.
_SHORT: Mapping[str, Any] = {
    "decode_steps": 2,
    "long_steps": 2,
    "hit_repeats": 2,
    "repeats": 3,
    "threads": [2],
    "micro_batches": [1],
    "wires": ["f32"],
    "cuts": "classes",
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One fault on one leg.

    Attributes:
        caught: lanes that failed, as they must.
        missed: lanes that did not, with their status; each one is a defect.
    """

    leg: Leg
    fault: str
    caught: tuple[str, ...]
    missed: tuple[str, ...]

    @property
    def applies(self) -> bool:
        """False where the model cannot show the fault, or owes none of its lanes."""
        return bool(self.caught or self.missed)


def run_trials(
    legs: Sequence[Leg],
    faults: Sequence[str],
    *,
    twins: Path,
    contracts: Mapping[str, RecordedContract],
    jobs: int,
    on_leg: Callable[[Leg], None],
) -> tuple[Trial, ...]:
    """Run every fault on every leg, `jobs` legs at a time; `on_leg` is told of each leg as it ends."""

    def attempt(leg: Leg) -> tuple[Trial, ...]:
        trials = _try(leg, faults, twins=twins, contracts=contracts)
        on_leg(leg)
        return trials

    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        return tuple(trial for trials in pool.map(attempt, legs) for trial in trials)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # at an interrupt nobody waits


def _try(
    leg: Leg, faults: Sequence[str], *, twins: Path, contracts: Mapping[str, RecordedContract]
) -> tuple[Trial, ...]:
    architecture = leg.family.arch or ""
    recipe = recipe_for(architecture, family=leg.family.family)
    job = Job(
        model=build_twin(recipe, twins),
        device="cpu",
        threads=1,
        family=leg.family,
        random_weights=True,
        recorded=contracts.get(architecture),
        twin=recipe.name,
        lanes=tuple(
            (f"{fault}/{lane.name}", _shorten(lane.params))
            for fault in faults
            for lane in leg.lanes
            if lane.name in FAULTS[fault].lanes
        ),
    )
    results = supervise(job, _Silent(), _TIMEOUT_SECONDS).results
    return tuple(_trial(leg, fault, [r for r in results if r.lane.startswith(f"{fault}/")]) for fault in faults)


def _trial(leg: Leg, fault: str, results: Sequence[LaneResult]) -> Trial:
    tried = [result for result in results if result.status is not Status.NOT_APPLICABLE]
    return Trial(
        leg=leg,
        fault=fault,
        caught=tuple(result.lane for result in tried if result.status is Status.FAIL),
        missed=tuple(f"{result.lane} ({result.status})" for result in tried if result.status is not Status.FAIL),
    )


def _shorten(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _SHORT.get(name, value) for name, value in params.items()}


class _Silent:
    def loaded(self, loaded: Loaded) -> None:
        """Nothing."""

    def lane_started(self, lane: str) -> None:
        """Nothing."""

    def lane_finished(self, result: LaneResult) -> None:
        """Nothing."""
