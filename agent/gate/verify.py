"""Check receipts, a verdict and their statements again, offline: what holds, what does not, and what nobody looked at."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from agent.errors import AgentError
from agent.gate.collect import collect
from agent.gate.current import require_fresh
from agent.gate.evidence import Evidence
from agent.gate.reason import State
from agent.gate.statements import statement_problem
from agent.gate.verdict import judge
from agent.gate.verdict_file import read_verdict, verdict_to_json
from matrixgen.leg import Plan

NOT_CHECKED = (
    "certificates and signatures themselves: `gh attestation verify FILE --repo OWNER/REPO` asks Sigstore",
    "that a runner did what its receipt says: run the leg again for that",
)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at: a name, and what is wrong with it; None if nothing is."""

    name: str
    problem: str | None


def verify(
    plan: Plan,
    receipts: Path | None,
    verdict: Path | None,
    *,
    signatures_required: bool,
    max_age_hours: float | None,
    now: dt.datetime,
) -> tuple[Check, ...]:
    """All checks that the given files allow; the plan's own digest was checked when it was read.

    Raises:
        ReceiptsUnreadable: the folder of receipts cannot be used.
    """
    checks: list[Check] = []
    evidence = collect(receipts) if receipts else None
    if receipts and evidence:
        checks += _check_receipts(plan, receipts, evidence, signatures_required=signatures_required)
    if verdict:
        checks += _check_verdict(plan, evidence, verdict, max_age_hours=max_age_hours, now=now)
    return tuple(checks)


def _check_receipts(plan: Plan, folder: Path, evidence: Evidence, *, signatures_required: bool) -> list[Check]:
    checks = [Check(name=file.place, problem=f"{file.cause}: {file.message}") for file in evidence.refused]
    if not evidence.receipts:
        checks.append(Check(name=str(folder), problem="no receipt at all"))
    for filed in evidence.receipts:
        problems = [
            None if filed.receipt.plan == plan.digest else f"of plan {filed.receipt.plan}",
            filed.unsigned if signatures_required else None,
            statement_problem(folder / filed.place),
        ]
        found = [problem for problem in problems if problem]
        checks.append(Check(name=filed.place, problem="; ".join(found) or None))
    return checks


def _check_verdict(
    plan: Plan, evidence: Evidence | None, path: Path, *, max_age_hours: float | None, now: dt.datetime
) -> list[Check]:
    try:
        verdict = read_verdict(path)
        checks = [Check(name=f"{path.name}: schema and digest", problem=None)]
        if max_age_hours is not None:
            require_fresh(verdict, now=now, max_age_hours=max_age_hours)
        statement = statement_problem(path)
    except AgentError as error:
        return [Check(name=path.name, problem=str(error))]
    right = verdict.plan == plan.digest
    checks.append(Check(name=f"{path.name}: plan", problem=None if right else f"of plan {verdict.plan}"))
    green = verdict.state is State.GREEN
    checks.append(Check(name=f"{path.name}: green", problem=None if green else f"it is {verdict.state}"))
    checks.append(Check(name=f"{path.name}: statement", problem=statement))
    if evidence is not None:
        same = verdict_to_json(judge(plan, evidence, verdict.context)) == verdict_to_json(verdict)
        problem = None if same else "these receipts give another verdict"
        checks.append(Check(name=f"{path.name}: judged again", problem=problem))
    return checks
