"""The verdict: green only if every planned leg has a valid receipt in which every owed lane passed.

`judge` is a pure function of the plan, the evidence and the run context: no clock, no files, no environment. What it does
not recognise is never green, and the order in which receipts come never matters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.gate.choose import Choice, choose
from agent.gate.evidence import Evidence, FiledReceipt, RunContext
from agent.gate.minimums import least_comparisons
from agent.gate.needs import job_reasons
from agent.gate.reason import Cause, Reason, State, state_of
from agent.gate.rules import Wanted, legal_cuts_of, reasons_against
from agent.gate.text import plain
from matrixgen.canonical import digest_of
from matrixgen.leg import Leg, Plan, Skipped


@dataclass(frozen=True, kw_only=True)
class LaneVerdict:
    """An owed lane: its status in the receipt that counts (``missing`` without one), comparisons made and owed, seconds."""

    lane: str
    status: str
    comparisons: int
    least: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LegVerdict:
    """A planned leg.

    Attributes:
        leg: its id.
        reasons: what keeps it from green; none on green.
        notes: what is worth knowing all the same, such as receipts of earlier attempts.
        place, sha256, digest: file, bytes and content of the receipt that counts; None where there is none.
        attempt: attempt of the run that made it; None where there is none.
        device: where it ran, in words; empty where nobody knows.
        lanes: the owed lanes in the order of the plan.
    """

    leg: str
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...] = ()
    place: str | None = None
    sha256: str | None = None
    digest: str | None = None
    attempt: int | None = None
    device: str = ""
    lanes: tuple[LaneVerdict, ...]

    @property
    def state(self) -> State:
        """Green without a reason."""
        return state_of(self.reasons)

    @property
    def comparisons(self) -> int:
        """Over all lanes."""
        return sum(lane.comparisons for lane in self.lanes)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the gate says.

    Attributes:
        plan: digest of the plan.
        event: its event.
        pin: the llama.cpp that the plan tests, as in pin.json.
        context: the run that asked.
        reasons: what concerns no planned leg: jobs, foreign receipts, files that are no receipts.
        legs: every planned leg, in the order of the plan.
        skipped: what the plan selected and does not test as asked, with the reason.
    """

    plan: str
    event: str
    pin: Mapping[str, Any]
    context: RunContext
    reasons: tuple[Reason, ...]
    legs: tuple[LegVerdict, ...]
    skipped: tuple[Skipped, ...]

    @property
    def all_reasons(self) -> tuple[Reason, ...]:
        """Those of the run, then those of the legs."""
        return (*self.reasons, *(reason for leg in self.legs for reason in leg.reasons))

    @property
    def state(self) -> State:
        """Green if there is a leg and no reason at all."""
        return state_of(self.all_reasons) if self.legs else State.RED

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The distinct causes, the one that explains most of the others first (the order of `Cause`)."""
        found = {reason.cause for reason in self.all_reasons}
        return tuple(cause for cause in Cause if cause in found)

    def count(self, state: State) -> int:
        """Legs in this state."""
        return sum(leg.state is state for leg in self.legs)

    @property
    def comparisons(self) -> int:
        """Over all legs."""
        return sum(leg.comparisons for leg in self.legs)


def judge(plan: Plan, evidence: Evidence, context: RunContext) -> Verdict:
    """Account for every planned leg, every receipt and every job."""
    wanted = Wanted.of(plan)
    by_leg: dict[str, list[FiledReceipt]] = defaultdict(list)
    for filed in sorted(evidence.receipts, key=lambda filed: (filed.place, filed.sha256)):
        by_leg[filed.receipt.leg].append(filed)
    planned = {leg.id for leg in plan.legs}
    foreign = [filed for name, group in by_leg.items() if name not in planned for filed in group]
    known = [filed for name, group in by_leg.items() if name in planned for filed in group]

    run_ids = {filed.receipt.run.get("run_id") for filed in known}
    chosen = {leg.id: choose(by_leg.get(leg.id, []), context, run_ids) for leg in plan.legs}
    builds = _build_reasons(
        plan, evidence.builds, {name: choice.filed for name, choice in chosen.items() if choice.filed}
    )
    reasons = [
        *job_reasons(context.jobs),
        *_no_rows(plan),
        *(Reason(cause=file.cause, message=plain(f"{file.place}: {file.message}")) for file in evidence.refused),
        *(
            Reason(
                cause=Cause.FOREIGN_RECEIPT,
                message=plain(f"{filed.place}: leg {filed.receipt.leg} is not in the plan"),
            )
            for filed in foreign
        ),
    ]
    build_failed = any(reason.cause is Cause.BUILD_FAILED for reason in reasons)
    return Verdict(
        plan=wanted.plan,
        event=wanted.event,
        pin=wanted.pin,
        context=context,
        reasons=tuple(sorted(reasons, key=lambda reason: ([*Cause].index(reason.cause), reason.message))),
        legs=tuple(
            _leg_verdict(wanted, leg, chosen[leg.id], context, builds.get(leg.id, ()), build_failed=build_failed)
            for leg in plan.legs
        ),
        skipped=plan.skipped,
    )


def _no_rows(plan: Plan) -> Iterable[Reason]:
    if not plan.legs:
        yield Reason(cause=Cause.NO_ROWS, message="the plan has no leg, so nothing was certified")


def _build_reasons(
    plan: Plan, builds: Mapping[str, frozenset[str]] | None, filed: Mapping[str, FiledReceipt]
) -> dict[str, tuple[Reason, ...]]:
    """By leg: a reason where legs that share a build ran other libraries than one another, or others than the build's."""
    ran = {
        leg.id: (leg.build_key, found)
        for leg in plan.legs
        if leg.id in filed and isinstance(found := filed[leg.id].receipt.engine.get("libraries"), dict) and found
    }
    sets: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for leg_id, (key, found) in ran.items():
        sets[key][digest_of(found)].append(leg_id)
    reasons: dict[str, tuple[Reason, ...]] = {}
    for leg_id, (key, found) in ran.items():
        problems = []
        if len(sets[key]) > 1:
            groups = " | ".join(", ".join(group) for group in sets[key].values())
            problems.append(f"legs of one build ran different libraries: {groups}")
        if builds is not None and (
            strange := sorted(n for n in found if str(found[n]) not in builds.get(key, frozenset()))
        ):
            problems.append(f"not of build {key}: {', '.join(strange)}")
        reasons[leg_id] = tuple(Reason(cause=Cause.WRONG_BUILD, message=plain(problem)) for problem in problems)
    return reasons


def _leg_verdict(
    wanted: Wanted,
    leg: Leg,
    choice: Choice,
    context: RunContext,
    build_reasons: tuple[Reason, ...],
    *,
    build_failed: bool,
) -> LegVerdict:
    filed = choice.filed
    if filed is None:
        why = "no receipt: the build failed" if build_failed else "no receipt: its runner was lost or it never ran"
        missing = Reason(cause=Cause.LEG_MISSING, message=why)
        return LegVerdict(
            leg=leg.id, reasons=(*choice.reasons, missing), notes=choice.notes, lanes=_lane_verdicts(leg, None)
        )
    receipt = filed.receipt
    return LegVerdict(
        leg=leg.id,
        reasons=(
            *choice.reasons,
            *reasons_against(wanted, leg, filed, context),
            *build_reasons,
        ),
        notes=choice.notes,
        place=plain(filed.place),
        sha256=filed.sha256,
        digest=filed.digest,
        attempt=filed.attempt,
        device=plain(
            " ".join(str(receipt.device[key]) for key in ("name", "description") if key in receipt.device), 100
        ),
        lanes=_lane_verdicts(leg, filed),
    )


def _lane_verdicts(leg: Leg, filed: FiledReceipt | None) -> tuple[LaneVerdict, ...]:
    found = {lane.lane: lane for lane in filed.receipt.lanes} if filed else {}
    cuts = legal_cuts_of(filed.receipt) if filed else 1
    return tuple(
        LaneVerdict(
            lane=lane.name,
            status=str(found[lane.name].status) if lane.name in found else "missing",
            comparisons=found[lane.name].comparisons if lane.name in found else 0,
            least=least_comparisons(lane, legal_cuts=cuts),
            seconds=round(float(found[lane.name].seconds), 3) if lane.name in found else 0.0,
        )
        for lane in leg.lanes
    )
