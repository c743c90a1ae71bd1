"""The verdict for people at a terminal and in a log: what is not green first, leg by leg, then what was counted."""

from __future__ import annotations

from collections.abc import Iterator

from agent.gate.reason import State
from agent.gate.verdict import Verdict

_ORDER = [State.RED, State.INFRA, State.GREEN]


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """Lines without markup. Text of receipts in a verdict is printable already (`agent.gate.text`)."""
    for reason in verdict.reasons:
        yield f"{reason.state:<6} run: {reason.cause}: {reason.message}"
    for state in _ORDER:
        for leg in verdict.legs:
            if leg.state is not state:
                continue
            if state is State.GREEN:
                yield f"green  {leg.leg}: {len(leg.lanes)} lanes, {leg.comparisons} comparisons on {leg.device}"
            for reason in leg.reasons:
                yield f"{state:<6} {leg.leg}: {reason.cause}: {reason.message}"
            for note in leg.notes:
                yield f"       {leg.leg}: note: {note}"
    for entry in verdict.skipped:
        yield f"       {entry.family}: not tested as asked: {entry.reason}"
    if not verdict.context.builds_checked:
        yield "       not checked: that the libraries are those of the plan's builds (--builds)"
    counts = ", ".join(f"{verdict.count(state)} {state}" for state in _ORDER if verdict.count(state)) or "no legs"
    causes = f" ({', '.join(verdict.causes)})" if verdict.causes else ""
    yield f"verdict: {verdict.state}{causes}: {counts} of {len(verdict.legs)}, {verdict.comparisons} comparisons"
