"""Why a family is planned as it is: which line, rule, pin, machine and budget decided, for every event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrixgen.battery import BY_HAND, UNTRUSTED_EVENTS
from matrixgen.errors import NoRunnerFits, NothingSelected
from matrixgen.plan import battery_of, build_plan
from matrixgen.report import count, gigabytes
from matrixgen.runner import needs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrixgen.battery import Battery
    from matrixgen.content import Manifest
    from matrixgen.family import Family
    from matrixgen.leg import Leg

TIERS = {
    1: "the full battery",
    2: "one fixed split",
    3: "dropped: it must be refused",
    None: f"in no tier: only {BY_HAND} plans it, when it is named in full",
}


def explain(manifest: Manifest, name: str, *, line: int) -> str:
    """The text for people. `line` is that of the row in families.json, 0 if not known. Raises UnknownFamily."""
    family = manifest.family(name)
    lines = [*_row(manifest, family, line), "", *_machines(manifest, family), ""]
    for event, by_tier in manifest.batteries.events.items():
        lines += _event(manifest, family, event, by_tier)
    return "\n".join(lines)


def _row(manifest: Manifest, family: Family, line: int) -> Iterator[str]:
    where = f"{manifest.root / 'families.json'}:{line}" if line else "families.json"
    yield f"{family.family}  ({where})"
    yield f"  tier          {'none' if family.tier is None else family.tier}, {TIERS[family.tier]}"
    yield f"  why           {family.reason or 'no reason is given'}"
    yield f"  architecture  {family.arch or 'none: a shared helper'}, {family.shape}; the file's header must say the same"
    yield f"  status        {family.status}, priority {family.priority}"
    size = family.weight_size
    pinned = f"{count(len(family.weight_files), 'file')}, {gigabytes(size)}, pinned"
    yield f"  weights       {family.unpinned or pinned}"
    for entry in manifest.quarantine:
        if entry.family == family.family:
            yield f"  quarantine    {entry.backend or 'all backends'}: {entry.said}"


def _machines(manifest: Manifest, family: Family) -> Iterator[str]:
    size = 0 if family.unpinned else family.weight_size
    yield "  machines"
    for runner in manifest.runners:
        lacking = needs_of(size, runner.backend).shortfall(runner)
        said = ", ".join(f"{gib:.1f} GiB of {name} too little" for name, gib in lacking.items()) or "fits"
        yield f"    {runner.name.ljust(22)}{said}"


def _event(manifest: Manifest, family: Family, event: str, by_tier: Mapping[int, Battery]) -> Iterator[str]:
    battery = battery_of(by_tier, family, event=event, by_name=True)
    if battery is None:
        yield f"  {event}: not planned, the event has no battery for tier {'none' if family.tier is None else family.tier}"
        return
    try:
        plan = build_plan(manifest, event=event, families=[family.family])
    except (NoRunnerFits, NothingSelected) as error:
        yield f"  {event}: cannot be planned: {error}"
        return
    yield f"  {event}: {count(len(plan.legs), 'leg')}" + (
        ", hosted machines only: code of a fork may run" if event in UNTRUSTED_EVENTS else ""
    )
    yield from (f"    not as asked: {entry.reason}" for entry in plan.skipped)
    for leg in plan.legs:
        yield from _leg(leg)
    owed = {lane.name for lane in plan.legs[0].lanes}
    if not_owed := [name for name in battery.lanes if name not in owed]:
        yield f"    not owed by shape {family.shape}: {', '.join(not_owed)}"


def _leg(leg: Leg) -> Iterator[str]:
    yield f"    {leg.id} on {leg.subject}, {leg.runner}, at most {leg.timeout_minutes} min, about {leg.estimate.seconds} s"
    yield f"      lanes  {', '.join(lane.name for lane in leg.lanes)}"
    yield f"      build  {leg.build_key}"
    if leg.model_key:
        yield f"      model  {leg.model_key}"
        yield f"      cache  {leg.cache.store}: {leg.cache.reason}"
