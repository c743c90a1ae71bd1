"""verdict.json: write a verdict, and read one back without trusting it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.errors import VerdictInvalid
from agent.gate.collect import read_bounded
from agent.gate.evidence import RunContext
from agent.gate.reason import Cause, Reason, State
from agent.gate.verdict import LaneVerdict, LegVerdict, Verdict
from matrixgen.canonical import digest_of
from matrixgen.files import write_atomically
from matrixgen.leg import Skipped
from matrixgen.schema import validator

SCHEMA_VERSION = 1
SCHEMA_FILE = Path(__file__).with_name("verdict.schema.json")
MAX_BYTES = 64 * 2**20
_AGAIN = "Make it anew with `skippy-agent gate`."


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """As plain JSON values, with state, causes and counts, and the digest of all else."""
    body = {
        "schema_version": SCHEMA_VERSION,
        "state": verdict.state,
        "causes": list(verdict.causes),
        "plan": verdict.plan,
        "event": verdict.event,
        "pin": dict(verdict.pin),
        "context": asdict(verdict.context),
        "counts": {
            "legs": len(verdict.legs),
            **{state.value: verdict.count(state) for state in State},
            "comparisons": verdict.comparisons,
        },
        "reasons": [asdict(reason) for reason in verdict.reasons],
        "legs": [{**asdict(leg), "state": leg.state} for leg in verdict.legs],
        "skipped": [entry._asdict() for entry in verdict.skipped],
    }
    body = json.loads(json.dumps(body))  # tuples become lists and enums strings, as they will be read back
    return {**body, "digest": digest_of(body)}


def write_verdict(verdict: Verdict, path: Path) -> None:
    """Write verdict.json, whole or not at all. Raises CannotWrite."""
    write_atomically(path, json.dumps(verdict_to_json(verdict), indent=1, ensure_ascii=True) + "\n")


def read_verdict(path: Path) -> Verdict:
    """Read verdict.json.

    Raises:
        VerdictInvalid: it cannot be read, does not match its schema, contradicts itself, or was changed.
    """
    try:
        data = json.loads(read_bounded(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise VerdictInvalid(f"{path} is not a verdict: {reason}. {_AGAIN}") from None
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    problem = next(iter(validator(schema).iter_errors(data)), None)
    if problem is not None:
        raise VerdictInvalid(f"{path} is not a verdict: {problem.json_path}: {problem.message[:200]}. {_AGAIN}")
    verdict = _from_json(data)
    try:
        expected = verdict_to_json(verdict)
    except (ValueError, RecursionError):
        expected = {}
    if expected != data or any(map(_hollow, verdict.legs)):
        raise VerdictInvalid(f"{path} was changed after it was written, or contradicts itself. {_AGAIN}")
    return verdict


def _hollow(leg: LegVerdict) -> bool:
    """True for a green leg that no receipt, or a lane without its pass, stands behind."""
    passed = all(lane.status == "pass" and lane.comparisons >= lane.least for lane in leg.lanes)
    return leg.state is State.GREEN and not (leg.sha256 and leg.digest and leg.lanes and passed)


def _from_json(data: Mapping[str, Any]) -> Verdict:
    return Verdict(
        plan=data["plan"],
        event=data["event"],
        pin=data["pin"],
        context=RunContext(**data["context"]),
        reasons=_reasons(data["reasons"]),
        legs=tuple(
            LegVerdict(
                **{
                    **{key: value for key, value in leg.items() if key != "state"},
                    "reasons": _reasons(leg["reasons"]),
                    "notes": tuple(leg["notes"]),
                    "lanes": tuple(LaneVerdict(**lane) for lane in leg["lanes"]),
                }
            )
            for leg in data["legs"]
        ),
        skipped=tuple(Skipped(**entry) for entry in data["skipped"]),
    )


def _reasons(rows: list[dict[str, str]]) -> tuple[Reason, ...]:
    return tuple(Reason(cause=Cause(row["cause"]), message=row["message"]) for row in rows)
