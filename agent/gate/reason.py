"""Why something is not green: a stable cause, what it means for the verdict, and the words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """State of a leg and of a verdict. Only `GREEN` lets the pin move; `INFRA` may be tried again."""

    GREEN = "green"
    RED = "red"
    INFRA = "infra"


class Cause(StrEnum):
    """Stable names of causes; docs/gate.md has a line on each."""

    BUILD_FAILED = "build_failed"
    NO_ROWS = "no_rows"
    LEG_FAILED = "leg_failed"
    LANE_NOT_PASSED = "lane_not_passed"
    LANES_DIFFER = "lanes_differ"
    TOO_FEW_COMPARISONS = "too_few_comparisons"
    FOREIGN_RECEIPT = "foreign_receipt"
    STALE_RECEIPT = "stale_receipt"
    CONFLICTING_RECEIPTS = "conflicting_receipts"
    RECEIPT_EDITED = "receipt_edited"
    RECEIPT_INVALID = "receipt_invalid"
    UNSIGNED = "unsigned"
    WRONG_PLAN = "wrong_plan"
    WRONG_PIN = "wrong_pin"
    WRONG_COMMIT = "wrong_commit"
    WRONG_FAMILY = "wrong_family"
    WRONG_BUILD = "wrong_build"
    WRONG_SUBJECT = "wrong_subject"
    WRONG_FILES = "wrong_files"
    WRONG_DEVICE = "wrong_device"
    WRONG_TIMES = "wrong_times"
    JOB_UNKNOWN = "job_unknown"
    LEG_MISSING = "leg_missing"
    LEG_INFRA = "leg_infra"
    RECEIPT_UNREADABLE = "receipt_unreadable"
    JOB_FAILED = "job_failed"
    JOB_CANCELLED = "job_cancelled"
    JOB_SKIPPED = "job_skipped"


# causes that say nothing about the model or the pin; every other cause is red
_INFRA = frozenset(
    {
        Cause.LEG_MISSING,
        Cause.LEG_INFRA,
        Cause.RECEIPT_UNREADABLE,
        Cause.JOB_FAILED,
        Cause.JOB_CANCELLED,
        Cause.JOB_SKIPPED,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """One reason: its cause and one line that says what, where and why."""

    cause: Cause
    message: str

    @property
    def state(self) -> State:
        """What this reason alone makes of a verdict."""
        return State.INFRA if self.cause in _INFRA else State.RED


def state_of(reasons: tuple[Reason, ...]) -> State:
    """Green without a reason; red outranks infra, since a retry cannot mend it."""
    states = {reason.state for reason in reasons}
    if not states:
        return State.GREEN
    return State.RED if State.RED in states else State.INFRA
