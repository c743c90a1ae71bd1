"""Make a plan: which legs must report for an event, and what each of them binds."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from matrixgen import limits
from matrixgen.battery import UNTRUSTED_EVENTS, Battery, LaneSpec
from matrixgen.errors import NothingSelected, UnknownBackend, UnknownEvent, UnknownFamily, UnknownSubject
from matrixgen.keys import build_key, model_key
from matrixgen.leg import Build, Leg, Plan, Skipped
from matrixgen.planfile import plan_to_json, read_plan, write_plan
from matrixgen.runner import builder, choose, needs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrixgen.family import Family
    from matrixgen.manifest import Manifest
    from matrixgen.pin import Pin
    from matrixgen.runner import RunnerClass

__all__ = [
    "Build",
    "LaneSpec",
    "Leg",
    "Plan",
    "Skipped",
    "build_plan",
    "plan_to_json",
    "read_plan",
    "select",
    "write_plan",
]

SUBJECTS = ("weights", "twin")
BUILD_MINUTES = 120


def build_plan(
    manifest: Manifest,
    *,
    event: str,
    tiers: Sequence[int] = (),
    families: Sequence[str] = (),
    backends: Sequence[str] = (),
    subject: str | None = None,
    allow_empty: bool = False,
) -> Plan:
    """Plan `event` for the selected rows.

    Args:
        manifest: The loaded manifest.
        event: A key of batteries.json.
        tiers: Tiers to keep; empty keeps every tier for which the event has a battery.
        families: Names or globs (`*`, `?`, `[...]`) to keep; empty keeps all.
        backends: Backends to plan instead of those of the battery.
        subject: `weights` or `twin` instead of that of the battery.
        allow_empty: Give a plan without legs instead of raising NothingSelected.

    Raises:
        UnknownEvent, UnknownFamily, UnknownBackend, UnknownSubject: a value that the manifest does not know.
        NothingSelected: no leg at all.
        NoRunnerFits: a leg is too large for every runner class of its backend, or the event may not use them.
    """
    _check_words(manifest, event, backends, subject)
    by_tier = manifest.batteries.events[event]
    named = bool(families or tiers)
    legs: list[Leg] = []
    builds: dict[str, Build] = {}
    skipped: list[Skipped] = []
    for family in select(manifest.families, families):
        if tiers and family.tier not in tiers:
            continue
        battery = by_tier.get(family.tier) if family.tier is not None else None
        if battery is None:
            if named:
                skipped.append(Skipped(family=family.family, reason=_no_battery(family, event)))
            continue
        wanted = subject or battery.subject
        if family.dropped:
            wanted = "twin"
        if wanted == "weights" and family.unpinned:
            skipped.append(Skipped(family=family.family, reason=f"weights: {family.unpinned}; a twin leg runs instead"))
            wanted = "twin"
        lanes = manifest.batteries.lanes_for(battery, family.shape)
        if not lanes:
            reason = f"a family of shape {family.shape} owes no lane of this battery"
            skipped.append(Skipped(family=family.family, reason=reason))
            continue
        for backend in sorted(set(backends or battery.backends)):
            leg, build = _leg(manifest, family, battery, lanes, event=event, backend=backend, subject=wanted)
            legs.append(leg)
            builds[build.key] = build
    if not legs and not allow_empty:
        raise NothingSelected(_nothing(event, tiers, families, sorted(by_tier), skipped))
    return Plan(
        schema_version=1,
        event=event,
        pin=manifest.pin,
        legs=tuple(legs),
        builds=tuple(builds[key] for key in sorted(builds)),
        skipped=tuple(skipped),
    )


def select(families: Sequence[Family], patterns: Sequence[str]) -> list[Family]:
    """Rows whose name matches one of the patterns, sorted by name; all rows without patterns.

    Raises UnknownFamily for a pattern that matches no row: a typing error must not shrink a plan.
    """
    rows = sorted(families, key=lambda family: family.family)
    if not patterns:
        return rows
    names = [family.family for family in rows]
    kept: set[str] = set()
    for pattern in patterns:
        found = set(_matching(names, pattern))
        if not found:
            raise UnknownFamily(pattern, names)
        kept |= found
    return [family for family in rows if family.family in kept]


def _matching(names: Sequence[str], pattern: str) -> Iterator[str]:
    matches = re.compile(fnmatch.translate(pattern)).match
    return (name for name in names if matches(name))


def _check_words(manifest: Manifest, event: str, backends: Sequence[str], subject: str | None) -> None:
    if event not in manifest.batteries.events:
        raise UnknownEvent(event, sorted(manifest.batteries.events))
    offered = sorted({runner.backend for runner in manifest.runners})
    for backend in backends:
        if backend not in offered:
            raise UnknownBackend(backend, offered)
    if subject is not None and subject not in SUBJECTS:
        raise UnknownSubject(subject)


def _leg(
    manifest: Manifest,
    family: Family,
    battery: Battery,
    lanes: tuple[LaneSpec, ...],
    *,
    event: str,
    backend: str,
    subject: str,
) -> tuple[Leg, Build]:
    files = family.weight_files if subject == "weights" else ()
    size = sum(file.size or 0 for file in files)
    leg_id = f"{family.family}@{backend}"
    runner = choose(
        manifest.runners,
        leg=leg_id,
        backend=backend,
        needs=needs_of(size, backend),
        trusted=event not in UNTRUSTED_EVENTS,
    )
    build = _build(manifest.pin, builder(manifest.runners, runner))
    cache_version = manifest.pin.cache_version
    leg = Leg(
        id=leg_id,
        family=family,
        backend=backend,
        subject=subject,
        lanes=lanes,
        runner=runner.name,
        runs_on=runner.labels,
        timeout_minutes=limits.cap_minutes(battery.timeout.minutes(size), self_hosted=runner.self_hosted),
        build_key=build.key,
        model_key=model_key(family.family, files, os=runner.os, cache_version=cache_version).text if files else None,
        files=files,
    )
    return leg, build


def _build(pin: Pin, runner: RunnerClass) -> Build:
    key = build_key(pin, runner)
    return Build(
        key=key.text,
        artifact=key.artifact_name,
        backend=runner.backend,
        os=runner.os,
        arch=runner.arch,
        runner=runner.name,
        runs_on=runner.labels,
        timeout_minutes=BUILD_MINUTES,
    )


def _no_battery(family: Family, event: str) -> str:
    if family.tier is None:
        return f"in no tier; `matrixgen move {family.family} --tier N` gives it one"
    return f"event {event} has no battery for tier {family.tier}"


def _nothing(
    event: str, tiers: Sequence[int], families: Sequence[str], known: Sequence[int], skipped: Sequence[Skipped]
) -> str:
    asked = [f"event {event}"]
    if tiers:
        asked.append(f"tier {', '.join(map(str, tiers))}")
    if families:
        asked.append(f"family {', '.join(families)}")
    parts = [
        f"no leg for {' and '.join(asked)}",
        f"event {event} has batteries for tier {', '.join(map(str, known))}",
    ]
    if families:
        parts += [f"{entry.family}: {entry.reason}" for entry in skipped[:3]]
    return "; ".join(parts) + ". Widen the selection, or give --allow-empty if an empty plan is what you want"
