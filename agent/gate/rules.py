"""What a receipt must say to count for its leg. Every rule names what it found and what it wanted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from agent.gate.evidence import FiledReceipt, RunContext
from agent.gate.minimums import least_comparisons
from agent.gate.reason import Cause, Reason
from agent.gate.text import plain
from agent.receipt.receipt import Receipt
from matrixgen.leg import Leg, Plan


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What every receipt of a plan must name; taken from the plan once, since its digest covers all of it."""

    plan: str
    event: str
    pin: Mapping[str, Any]

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """What `plan` wants."""
        return cls(plan=plan.digest, event=plan.event, pin=plan.pin.to_json())


Rule = Callable[[Wanted, Leg, FiledReceipt, RunContext], Iterator[Reason]]

_NOT_LOADED = frozenset({"refuse"})  # lanes that pass without a model on a device
_NEEDS_PROJECTOR = "media-prefill"


def reasons_against(wanted: Wanted, leg: Leg, filed: FiledReceipt, context: RunContext) -> tuple[Reason, ...]:
    """Everything that keeps `filed` from being a pass of `leg`."""
    rules = _ALWAYS + (_EVIDENCE if any(lane.status == "pass" for lane in filed.receipt.lanes) else ())
    return tuple(reason for rule in rules for reason in rule(wanted, leg, filed, context))


def legal_cuts_of(receipt: Receipt) -> int:
    """How many legal cuts the leg's `inspect` found; 1 where it says nothing."""
    for lane in receipt.lanes:
        if lane.lane == "inspect" and isinstance(cuts := lane.measurements.get("legal_cuts"), list):
            return max(1, len(cuts))
    return 1


def _binding(wanted: Wanted, leg: Leg, filed: FiledReceipt, _context: RunContext) -> Iterator[Reason]:
    """Plan, pin, manifest row, build and subject are those of the plan."""
    receipt = filed.receipt
    if (receipt.plan, receipt.event) != (wanted.plan, wanted.event):
        yield _reason(Cause.WRONG_PLAN, f"it is of plan {receipt.plan} ({receipt.event}), this is {wanted.plan}")
    if receipt.pin != wanted.pin:
        yield _reason(
            Cause.WRONG_PIN, f"it tested pin {receipt.pin.get('commit')}, the plan has {wanted.pin['commit']}"
        )
    if receipt.family != leg.family.to_row():
        yield _reason(Cause.WRONG_FAMILY, "its manifest row is not the one of the plan")
    if receipt.build_key != leg.build_key:
        yield _reason(Cause.WRONG_BUILD, f"it names build {receipt.build_key}, the plan wants {leg.build_key}")
    build = receipt.engine.get("build")
    ran = build.get("key") if isinstance(build, Mapping) else None  # a build that was made for no plan has none
    if ran and ran != leg.build_key:
        yield _reason(Cause.WRONG_BUILD, f"it ran build {ran}, the plan wants {leg.build_key}")
    if receipt.subject.kind != leg.subject:
        yield _reason(Cause.WRONG_SUBJECT, f"it tested a {receipt.subject.kind}, the plan wants {leg.subject}")


def _commit(_wanted: Wanted, _leg: Leg, filed: FiledReceipt, context: RunContext) -> Iterator[Reason]:
    """The runner worked on the commit that the verdict is about."""
    said = filed.receipt.run.get("sha")
    if context.base_commit is None or (said is None and context.run_id is None):
        return
    if said != context.base_commit:
        yield _reason(Cause.WRONG_COMMIT, f"it ran at commit {said}, the verdict is about {context.base_commit}")


def _signature(_wanted: Wanted, _leg: Leg, filed: FiledReceipt, context: RunContext) -> Iterator[Reason]:
    if context.signatures_required and filed.unsigned is not None:
        yield _reason(Cause.UNSIGNED, filed.unsigned)


def _times(_wanted: Wanted, _leg: Leg, filed: FiledReceipt, _context: RunContext) -> Iterator[Reason]:
    started, finished = filed.receipt.started_at, filed.receipt.finished_at
    try:
        possible = _time(started) <= _time(finished)
    except ValueError:
        possible = False
    if not possible:
        yield _reason(Cause.WRONG_TIMES, f"it began at {started} and ended at {finished}")


def _lanes(_wanted: Wanted, leg: Leg, filed: FiledReceipt, _context: RunContext) -> Iterator[Reason]:
    """Exactly the owed lanes, in their order, each passed with enough comparisons."""
    owed = [lane.name for lane in leg.lanes]
    found = [lane.lane for lane in filed.receipt.lanes]
    if owed != found:
        yield _reason(Cause.LANES_DIFFER, _difference(owed, found))
    specs = {lane.name: lane for lane in leg.lanes}
    cuts = legal_cuts_of(filed.receipt)
    for lane in filed.receipt.lanes:
        where = f"lane {lane.lane}"
        if lane.status == "fail":
            yield _reason(Cause.LEG_FAILED, f"{where}: {lane.problems[0] if lane.problems else lane.summary}")
        elif lane.status == "infra":
            yield _reason(Cause.LEG_INFRA, f"{where}: {lane.problems[0] if lane.problems else lane.summary}")
        elif lane.status != "pass" or lane.problems:
            yield _reason(Cause.LANE_NOT_PASSED, f"{where} is {lane.status}: {lane.summary}; only a pass counts")
        elif lane.lane in specs and lane.comparisons < (least := least_comparisons(specs[lane.lane], legal_cuts=cuts)):
            yield _reason(
                Cause.TOO_FEW_COMPARISONS, f"{where} made {lane.comparisons} comparisons, at least {least} are owed"
            )


def _engine(_wanted: Wanted, _leg: Leg, filed: FiledReceipt, _context: RunContext) -> Iterator[Reason]:
    libraries = filed.receipt.engine.get("libraries")
    if not isinstance(libraries, dict) or not libraries or not filed.receipt.engine.get("version"):
        yield _reason(Cause.WRONG_BUILD, "it names no libraries of llama.cpp, so nobody knows what was tested")


def _files(_wanted: Wanted, leg: Leg, filed: FiledReceipt, _context: RunContext) -> Iterator[Reason]:
    """The architecture of the row, and on weights each file with the size and sha256 of the plan."""
    if not _loads(leg):
        return
    subject = filed.receipt.subject
    if subject.architecture != leg.family.arch:
        yield _reason(Cause.WRONG_FILES, f"it tested architecture {subject.architecture!r}, not {leg.family.arch!r}")
    tested = sorted((file.name, file.size, file.sha256) for file in subject.files)
    if leg.subject == "twin":
        if not tested or not subject.recipe:
            yield _reason(Cause.WRONG_FILES, "it names no twin: a file and a recipe are owed")
        return
    projector = {file.path for file in leg.family.projector.files} if leg.family.projector else set()
    unread = projector if all(lane.name != _NEEDS_PROJECTOR for lane in leg.lanes) else set()
    planned = {(file.path.rpartition("/")[2], file.size, file.sha256): file.path in unread for file in leg.files}
    owed = [file for file, optional in planned.items() if not optional]
    if lost := sorted({str(file[0]) for file in owed if file not in tested}):
        yield _reason(Cause.WRONG_FILES, f"not tested with the bytes of the plan: {', '.join(lost)}")
    if extra := sorted({name for name, size, sha256 in tested if (name, size, sha256) not in planned}):
        yield _reason(Cause.WRONG_FILES, f"it tested files that the plan does not have: {', '.join(extra)}")
    if not owed or len(set(tested)) != len(tested):
        yield _reason(Cause.WRONG_FILES, "a leg on weights owes each of its files once")


def _device(_wanted: Wanted, leg: Leg, filed: FiledReceipt, _context: RunContext) -> Iterator[Reason]:
    """The device is of the leg's backend, and most nodes of the graph ran there."""
    if not _loads(leg):
        return
    device, nodes = filed.receipt.device, filed.receipt.nodes_by_device
    name = str(device.get("name"))
    if device.get("backend") != leg.backend:
        yield _reason(Cause.WRONG_DEVICE, f"it ran on {name} of backend {device.get('backend')}, not on {leg.backend}")
    elif 2 * nodes.get(name, 0) <= sum(nodes.values()):
        seen = ", ".join(f"{count} on {where}" for where, count in sorted(nodes.items())) or "none anywhere"
        yield _reason(Cause.WRONG_DEVICE, f"most nodes of the graph did not run on {name}: {seen}")


_ALWAYS: tuple[Rule, ...] = (_binding, _commit, _signature, _times, _lanes)
_EVIDENCE: tuple[Rule, ...] = (_engine, _files, _device)


def _loads(leg: Leg) -> bool:
    return any(lane.name not in _NOT_LOADED for lane in leg.lanes)


def _difference(owed: list[str], found: list[str]) -> str:
    parts = {
        "missing": [name for name in owed if name not in found],
        "not owed": sorted({name for name in found if name not in owed}),
        "repeated": sorted({name for name in found if found.count(name) > 1}),
    }
    words = [f"{word}: {', '.join(names)}" for word, names in parts.items() if names]
    return f"lanes {'; '.join(words)}" if words else f"lanes out of order: {', '.join(found)}"


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def _reason(cause: Cause, message: str) -> Reason:
    return Reason(cause=cause, message=plain(message))
