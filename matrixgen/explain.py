"""Why a family is planned as it is: which line, rule, pin, machine and budget decided, for every event."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from matrixgen.battery import BY_HAND, UNTRUSTED_EVENTS
from matrixgen.errors import NoRunnerFits, NothingSelected
from matrixgen.plan import battery_of, build_plan
from matrixgen.report import count, gigabytes
from matrixgen.runner import needs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrixgen.battery import Battery
    from matrixgen.content import Manifest
    from matrixgen.family import Family
    from matrixgen.leg import Leg

WIDTH = 110  # of a line that lists names
TIERS = {
    1: "the full battery",
    2: "one fixed split",
    3: "dropped: it must be refused",
    None: f"in no tier: only {BY_HAND} plans it, when it is named in full",
}


def explain(manifest: Manifest, name: str, *, line: int) -> str:
    """The text for people. `line` is that of the row in families.json, 0 if not known. Raises UnknownFamily.

    Events that plan the same are told together, and each key once.
    """
    family = manifest.family(name)
    legs: list[Leg] = []
    events_of: dict[tuple[str, ...], list[str]] = {}
    for event, by_tier in manifest.batteries.events.items():
        said, planned = _event(manifest, family, event, by_tier)
        events_of.setdefault(tuple(said), []).append(event)
        legs += planned
    lines = [*_row(manifest, family, line), "", *_machines(manifest, family)]
    for body, events in events_of.items():
        lines += ["", f"  {', '.join(events)}", *body]
    return "\n".join([*lines, *_keys(legs)])


def _row(manifest: Manifest, family: Family, line: int) -> Iterator[str]:
    where = f"{manifest.root / 'families.json'}:{line}" if line else "families.json"
    yield f"{family.family}  ({where})"
    tier = TIERS[family.tier] if family.standalone or family.dropped else "never a leg of its own"
    yield f"  tier          {'none' if family.tier is None else family.tier}, {tier}"
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
        lacking = needs_of(size, runner.backend).lacking(runner)
        yield f"    {runner.name.ljust(22)}{f'lacks {lacking}' if lacking else 'fits'}"


def _event(
    manifest: Manifest, family: Family, event: str, by_tier: Mapping[int, Battery]
) -> tuple[list[str], Sequence[Leg]]:
    """(what the event plans, its legs)."""
    battery = battery_of(by_tier, family, event=event, by_name=True)
    if battery is None:
        return [f"    not planned: no battery for tier {'none' if family.tier is None else family.tier}"], ()
    try:
        plan = build_plan(manifest, event=event, families=[family.family])
    except (NoRunnerFits, NothingSelected) as error:
        return _wrapped(f"cannot be planned: {error}"), ()
    lines = ["    hosted machines only: code of a fork may run"] if event in UNTRUSTED_EVENTS else []
    lines += [f"    not as asked: {entry.reason}" for entry in plan.skipped]
    legs_of: dict[tuple[str, ...], list[Leg]] = {}  # by the lanes that they owe
    for leg in plan.legs:
        legs_of.setdefault(tuple(lane.name for lane in leg.lanes), []).append(leg)
    for lanes, legs in legs_of.items():
        for leg in legs:
            time = f"at most {leg.timeout_minutes} min, about {leg.estimate.seconds} s"
            lines.append(f"    {leg.id} on {leg.subject}, {leg.runner}, {time}")
        lines += _wrapped(f"{count(len(lanes), 'lane')}: {', '.join(lanes)}")
    owed = {name for lanes in legs_of for name in lanes}
    if not_owed := [name for name in battery.lanes if name not in owed]:
        lines += _wrapped(f"not owed by shape {family.shape}: {', '.join(not_owed)}")
    return lines, plan.legs


def _keys(legs: Sequence[Leg]) -> Iterator[str]:
    """Every key of `legs` once, with the machines that use it, and where these keep the files."""
    users: dict[str, list[str]] = {}
    kept: dict[str, str] = {}
    for leg in legs:
        for what, key in (("build", leg.build_key), ("files", leg.model_key)):
            if key and leg.runner not in users.setdefault(f"    {what}  {key}", []):
                users[f"    {what}  {key}"].append(leg.runner)
        if leg.model_key:
            kept[leg.runner] = f"    {leg.runner} keeps them in {leg.cache.store}: {leg.cache.reason}"
    if users:
        yield "\n  keys"
    for key, runners in users.items():
        yield key
        yield f"           for {', '.join(runners)}"
    yield from kept.values()


def _wrapped(text: str) -> list[str]:
    return wrap(text, width=WIDTH, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)
