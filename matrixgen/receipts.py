"""What a planner needs from the receipts of earlier runs: what passed, and how long each lane took.

Receipts are written by the agent; here they are data of somebody else. One that is not whole is told, and counts for nothing.
"""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from matrixgen.canonical import digest_of
from matrixgen.errors import InvalidValue, ManifestUnreadable
from matrixgen.source import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE_NAME = "receipt.json"
MAX_RECEIPTS = 100_000


class LaneTime(NamedTuple):
    """One lane of a receipt."""

    lane: str
    status: str
    seconds: float


class ReceiptFacts(NamedTuple):
    """`plan` is the digest of the plan that owed the leg; `status` is `pass` only if every lane passed."""

    leg: str
    plan: str
    subject: str
    status: str
    lanes: tuple[LaneTime, ...]


def read_receipts(folder: Path) -> tuple[list[ReceiptFacts], list[str]]:
    """(receipts, what is wrong with files that are none) of all `receipt.json` below `folder`, in the order of their paths.

    Raises InvalidValue when there is no such folder.
    """
    if not folder.is_dir():
        raise InvalidValue(f"{folder} is not a folder; give the one into which receipts were downloaded")
    receipts, wrong = [], []
    for count, path in enumerate(sorted(folder.rglob(FILE_NAME))):
        if count == MAX_RECEIPTS:
            raise InvalidValue(f"{folder} holds more than {MAX_RECEIPTS} receipts; give those of one run")
        try:
            receipts.append(_facts(json.loads(read_text(path), parse_constant=_refuse)))
        except ManifestUnreadable as error:
            wrong.append(error.problem)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            wrong.append(f"{path} is not a receipt: {_short(error)}")
    return receipts, wrong


def _facts(data: Any) -> ReceiptFacts:
    said = data["digest"]
    body = {key: value for key, value in data.items() if key != "digest"}
    if digest_of(body) != said:
        raise ValueError("it does not have the digest that it states")
    lanes = tuple(LaneTime(str(lane["lane"]), str(lane["status"]), float(lane["seconds"])) for lane in data["lanes"])
    if not lanes or any(not 0 <= lane.seconds < 1e7 for lane in lanes):
        raise ValueError("it has no lanes, or a time that cannot be")
    passed = data["status"] == "pass" and all(lane.status == "pass" for lane in lanes)
    return ReceiptFacts(
        leg=str(data["leg"]),
        plan=str(data["plan"]),
        subject=str(data["subject"]["kind"]),
        status="pass" if passed else "not passed",
        lanes=lanes,
    )


def timings_of(receipts: Sequence[ReceiptFacts]) -> dict[tuple[str, str, str], float]:
    """(leg, subject, lane) -> median seconds over all receipts in which the lane passed.

    A lane that failed may have stopped early, so its time says nothing.
    """
    times: dict[tuple[str, str, str], list[float]] = {}
    for receipt in receipts:
        for lane in receipt.lanes:
            if lane.status == "pass":
                times.setdefault((receipt.leg, receipt.subject, lane.lane), []).append(lane.seconds)
    return {key: median(values) for key, values in sorted(times.items())}


def passed_legs(receipts: Sequence[ReceiptFacts], plan_digest: str) -> set[str]:
    """Legs with a receipt of exactly this plan in which every lane passed."""
    return {receipt.leg for receipt in receipts if receipt.plan == plan_digest and receipt.status == "pass"}


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _short(error: Exception) -> str:
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return ascii(text)[1:-1][:120]
