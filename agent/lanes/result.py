"""What a lane found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """Outcome of a lane. Only `PASS` counts for a lane that is owed."""

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"  # the model or the pin is wrong
    INFRA = "infra"  # the runner, the network or the disk; may be tried again
    UNSUPPORTED = "unsupported"  # with the reason, only where the manifest says so
    NOT_APPLICABLE = "not-applicable"  # with the reason, decided before anything ran


@dataclass(frozen=True, kw_only=True)
class LaneResult:
    """The outcome of one lane.

    Attributes:
        lane: its name.
        status: the outcome.
        comparisons: how many values were compared with their expectation; a pass without any is impossible.
        summary: one line for people.
        problems: what was wrong, each with its place; empty on a pass.
        notes: what is worth knowing though nothing is wrong.
        measurements: figures, JSON-compatible.
        seconds: wall time.
    """

    lane: str
    status: Status
    comparisons: int
    summary: str
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    measurements: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; a measurement that is infinite or no number becomes a word, since JSON has none."""
        return {**asdict(self), "measurements": _finite(self.measurements)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaneResult:
        """The inverse of `to_json`."""
        fields = dict(data)
        fields["status"] = Status(fields["status"])
        fields["problems"] = tuple(fields["problems"])
        fields["notes"] = tuple(fields["notes"])
        return cls(**fields)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numbers that are not finite become words."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


@dataclass
class Findings:
    """What a lane collects while it runs; `result` applies the rule that absent is not green."""

    lane: str
    comparisons: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    measurements: dict[str, Any] = field(default_factory=dict)

    def expect(self, condition: bool, problem: str) -> bool:
        """Count one comparison; record `problem` if it does not hold."""
        self.comparisons += 1
        if not condition:
            self.problems.append(problem)
        return condition

    def result(self, summary: str) -> LaneResult:
        """The outcome: a fail if anything was wrong or if nothing was compared."""
        problems = list(self.problems)
        if not self.comparisons:
            problems.append("nothing was compared")
        return LaneResult(
            lane=self.lane,
            status=Status.FAIL if problems else Status.PASS,
            comparisons=self.comparisons,
            summary=summary if not problems else problems[0],
            problems=tuple(problems),
            notes=tuple(self.notes),
            measurements=plain(self.measurements),
        )
