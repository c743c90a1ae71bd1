"""Which of the receipts of a leg counts: that of the highest attempt of this run, and of no other run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from agent.gate.evidence import FiledReceipt, RunContext
from agent.gate.reason import Cause, Reason
from agent.gate.text import plain


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The receipt that counts for a leg, if any, and what was said on the way to it."""

    filed: FiledReceipt | None
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]


def choose(filed: list[FiledReceipt], context: RunContext, run_ids: set[str | None]) -> Choice:
    """The receipt of the highest attempt of this run. An earlier attempt of the same run is superseded, not wrong."""
    reasons: list[Reason] = []
    notes: list[str] = []
    usable: dict[int, list[FiledReceipt]] = defaultdict(list)
    for entry in filed:
        if stale := _stale(entry, context, run_ids):
            reasons.append(Reason(cause=Cause.STALE_RECEIPT, message=plain(f"{entry.place}: {stale}")))
        else:
            usable[entry.attempt or 0].append(entry)
    if not usable:
        return Choice(filed=None, reasons=tuple(reasons), notes=())
    best, *older = sorted(usable, reverse=True)
    notes += [
        f"{plain(entry.place)}: attempt {attempt} is superseded" for attempt in older for entry in usable[attempt]
    ]
    candidates = usable[best]
    if len({entry.digest for entry in candidates}) > 1:
        places = ", ".join(entry.place for entry in candidates)
        reasons.append(
            Reason(cause=Cause.CONFLICTING_RECEIPTS, message=plain(f"receipts of one attempt that differ: {places}"))
        )
        return Choice(filed=None, reasons=tuple(reasons), notes=tuple(notes))
    notes += [f"{plain(entry.place)}: another copy of the same receipt" for entry in candidates[1:]]
    signed = next((entry for entry in candidates if entry.unsigned is None), candidates[0])
    return Choice(filed=signed, reasons=tuple(reasons), notes=tuple(notes))


def _stale(filed: FiledReceipt, context: RunContext, run_ids: set[str | None]) -> str | None:
    """Why a receipt is of another run than the one that asks; None if it is of this one."""
    run_id, attempt = filed.receipt.run.get("run_id"), filed.attempt
    if context.run_id is None and len(run_ids) > 1:
        return f"of run {run_id}, and others are of other runs: say with --run-id which one counts"
    if context.run_id is not None and run_id != context.run_id:
        return f"of run {run_id}, this is run {context.run_id}"
    repository = filed.receipt.run.get("repository")
    if context.run_id is not None and context.repository is not None and repository != context.repository:
        return f"of repository {repository}, this is {context.repository}"
    if attempt is None or (attempt == 0 and context.run_id is not None):
        return f"its attempt {filed.receipt.run.get('attempt')!r} is not a number"
    if context.attempt is not None and attempt > context.attempt:
        return f"of attempt {attempt}, and this run is at attempt {context.attempt}"
    return None
