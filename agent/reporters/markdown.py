"""The verdict as GitHub Markdown, for a step summary or a check run: what is not green first, cut to what GitHub takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.gate.reason import State
from agent.gate.verdict import LegVerdict, Verdict
from agent.gate.verdict_file import verdict_to_json
from matrixgen.limits import MAX_SUMMARY_BYTES

_MARKS = {State.GREEN: "✅", State.RED: "❌", State.INFRA: "⚠️"}
_ORDER = [State.RED, State.INFRA, State.GREEN]
_SPECIAL = re.compile(r"[\\`*_{}\[\]()#+!|~@<>&]|:(?=//)")
_REASONS_SHOWN = 20


def render_markdown(verdict: Verdict, limit: int = MAX_SUMMARY_BYTES) -> str:
    """At most `limit` bytes of UTF-8 (GitHub takes 1 MiB for a step summary).

    What does not fit is counted, never dropped silently.
    """
    tail = _tail(verdict)
    head = _head(verdict)
    budget = limit - len((head + tail).encode()) - 200
    blocks, left = [], 0
    for block in _blocks(verdict):
        size = len(block.encode()) + 1
        if left or size > budget:
            left += 1
            continue
        budget -= size
        blocks.append(block)
    more = f"\n{left} more blocks did not fit; everything is in verdict.json.\n" if left else ""
    return "\n".join([head, *blocks]) + more + tail


def _head(verdict: Verdict) -> str:
    counts = ", ".join(f"{verdict.count(state)} {state}" for state in _ORDER if verdict.count(state))
    context = verdict.context
    facts = {
        "llama.cpp": str(verdict.pin["commit"]),
        "tested on": context.base_commit,
        "run": f"{context.run_id}, attempt {context.attempt}" if context.run_id else None,
        "event": verdict.event,
        "libraries": "those of the plan's builds" if verdict.context.builds_checked else "not traced to the builds",
    }
    lines = [
        f"## {_MARKS[verdict.state]} Verdict: {verdict.state}",
        "",
        f"{len(verdict.legs)} legs planned: {counts or 'none'}. {verdict.comparisons} comparisons.",
        "",
        *(f"- {name}: {escape(value)}" for name, value in facts.items() if value),
        "",
    ]
    return "\n".join(lines)


def _blocks(verdict: Verdict) -> Iterator[str]:
    """Self-contained pieces, the most important first."""
    if verdict.reasons:
        yield "### The run\n"
        for reason in verdict.reasons:
            yield f"- **{escape(reason.cause)}** {escape(reason.message)}"
        yield ""
    for state in (State.RED, State.INFRA):
        legs = [leg for leg in verdict.legs if leg.state is state]
        if legs:
            yield f"### {_MARKS[state]} {len(legs)} {state}\n"
            yield from map(_bad_leg, legs)
    green = [leg for leg in verdict.legs if leg.state is State.GREEN]
    if green:
        yield _table("green", ["leg", "lanes", "comparisons", "device"], map(_green_row, green))
    if verdict.skipped:
        rows = ([escape(entry.family), escape(entry.reason)] for entry in verdict.skipped)
        yield _table("not tested as asked", ["family", "reason"], rows)


def _bad_leg(leg: LegVerdict) -> str:
    first = leg.reasons[0]
    rest = leg.reasons[:_REASONS_SHOWN]
    lines = [f"- **{escape(reason.cause)}** {escape(reason.message)}" for reason in rest]
    if len(leg.reasons) > _REASONS_SHOWN:
        lines.append(f"- and {len(leg.reasons) - _REASONS_SHOWN} more")
    lines += [f"- note: {escape(note)}" for note in leg.notes[:_REASONS_SHOWN]]
    lanes = ", ".join(f"{lane.lane} {lane.status}" for lane in leg.lanes)
    title = f"<b>{escape(leg.leg)}</b>: {escape(first.cause)}: {escape(first.message)}"
    return "\n".join([f"<details><summary>{title}</summary>", "", *lines, "", escape(lanes), "", "</details>", ""])


def _green_row(leg: LegVerdict) -> list[str]:
    return [escape(leg.leg), str(len(leg.lanes)), str(leg.comparisons), escape(leg.device)]


def _table(title: str, columns: list[str], rows: Iterator[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [
            f"<details><summary>{len(lines)} {title}</summary>",
            "",
            f"| {' | '.join(columns)} |",
            f"|{' --- |' * len(columns)}",
            *lines,
            "",
            "</details>",
            "",
        ]
    )


def _tail(verdict: Verdict) -> str:
    return f"\nVerdict `{verdict_to_json(verdict)['digest']}` of plan `{verdict.plan}`\n"


def escape(text: str) -> str:
    """Text that shows as it is: no markup, no mention, no link comes alive in it."""
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", text.replace("\n", " "))
