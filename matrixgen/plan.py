"""Make a plan: which legs must report for an event, and what each of them binds."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from matrixgen import limits
from matrixgen.battery import BY_HAND, UNTRUSTED_EVENTS, Battery, LaneSpec
from matrixgen.caches import choose_cache
from matrixgen.cost import estimate
from matrixgen.errors import NothingSelected, UnknownBackend, UnknownEvent, UnknownFamily, UnknownSubject
from matrixgen.keys import build_key, model_key
from matrixgen.leg import Build, Leg, Plan, Skipped
from matrixgen.planfile import plan_to_json, read_plan, write_plan
from matrixgen.quarantine import Quarantine
from matrixgen.runner import builder, choose, needs_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from matrixgen.content import Manifest
    from matrixgen.cost import Timings
    from matrixgen.family import Family
    from matrixgen.runner import RunnerClass

__all__ = [
    "Build",
    "LaneSpec",
    "Leg",
    "Plan",
    "Skipped",
    "battery_of",
    "build_plan",
    "plan_to_json",
    "read_plan",
    "restrict",
    "select",
    "write_plan",
]

SUBJECTS = ("weights", "twin")
BUILD_MINUTES = 120
SLACK = 2  # how many times longer than measured a leg may take


def build_plan(
    manifest: Manifest,
    *,
    event: str,
    tiers: Sequence[int] = (),
    families: Sequence[str] = (),
    backends: Sequence[str] = (),
    subject: str | None = None,
    allow_empty: bool = False,
    trusted: bool = True,
    timings: Timings | None = None,
) -> Plan:
    """Plan `event` for the selected rows.

    Args:
        manifest: The loaded manifest.
        event: A key of batteries.json.
        tiers: Tiers to keep; empty keeps every tier for which the event has a battery.
        families: Names or globs (`*`, `?`, `[...]`) to keep; empty keeps all. A family that is named in full, without a
            glob, is planned although it is in quarantine, and for the event `manual-full` although it is in no tier; there,
            with the subject `weights`, it need not be pinned either: the leg has no files, and a person brings them.
        backends: Backends to plan instead of those of the battery.
        subject: `weights` or `twin` instead of that of the battery.
        allow_empty: Give a plan without legs instead of raising NothingSelected.
        trusted: False where code of a fork may run: only hosted runner classes, as for the event `pull-request`.
        timings: Measured seconds by (leg, subject, lane), see `receipts.timings_of`.

    Raises:
        UnknownEvent, UnknownFamily, UnknownBackend, UnknownSubject: a value that the manifest does not know.
        NothingSelected: no leg at all.
        NoRunnerFits: a leg is too large for every runner class of its backend, or the event may not use them.
    """
    _check_words(manifest, event, backends, subject)
    by_tier = manifest.batteries.events[event]
    planner = _Planner(manifest, event, trusted=trusted and event not in UNTRUSTED_EVENTS, timings=timings or {})
    asked = bool(families or tiers)
    legs: list[Leg] = []
    skipped: list[Skipped] = []
    for family in select(manifest.families, families):
        if tiers and family.tier not in tiers:
            continue
        by_name = family.family in families
        battery = battery_of(by_tier, family, event=event, by_name=by_name)
        if battery is None:
            if asked:
                skipped.append(Skipped(family.family, _no_battery(family, event)))
            continue
        lanes = manifest.batteries.lanes_for(battery, family.shape)
        if not lanes:
            skipped.append(Skipped(family.family, f"a family of shape {family.shape} owes no lane of this battery"))
            continue
        wanted = "twin" if family.dropped else subject or battery.subject
        brought = by_name and event == BY_HAND and subject == "weights"  # a person names the family and brings its file
        why = family.unpinned if wanted == "weights" and not brought else None
        twins = []
        for backend in sorted(set(backends or battery.backends)):
            if (entry := planner.quarantine.of(family.family, backend)) and not by_name:
                skipped.append(Skipped(family.family, f"{backend}: {entry.said}"))
                continue
            owed = manifest.batteries.lanes_for(battery, family.shape, backend)
            leg = planner.leg(family, battery, owed, backend=backend, subject="twin" if why else wanted)
            legs.append(leg)
            twins.append(leg)
        if why and twins:
            skipped.append(Skipped(family.family, f"weights: {why}; a twin leg runs instead"))
    if not legs and not allow_empty:
        raise NothingSelected(_nothing(event, tiers, families, sorted(by_tier), skipped))
    return Plan(
        schema_version=1,
        event=event,
        pin=manifest.pin,
        legs=tuple(legs),
        builds=tuple(planner.builds[key] for key in sorted(planner.builds)),
        skipped=tuple(skipped),
    )


def battery_of(by_tier: Mapping[int, Battery], family: Family, *, event: str, by_name: bool) -> Battery | None:
    """The battery that `family` owes for `event`; one that is in no tier owes that of tier 1 when a person names it."""
    if family.tier is not None:
        return by_tier.get(family.tier)
    return by_tier.get(1) if event == BY_HAND and by_name and family.standalone else None


def restrict(plan: Plan, kept: Container[str], reason: str) -> Plan:
    """The plan with only the legs whose id is `kept`, and their builds; each other leg is skipped for `reason`."""
    legs = tuple(leg for leg in plan.legs if leg.id in kept)
    needed = {leg.build_key for leg in legs}
    left_out = tuple(Skipped(leg.family.family, f"{leg.backend}: {reason}") for leg in plan.legs if leg.id not in kept)
    builds = tuple(build for build in plan.builds if build.key in needed)
    return replace(plan, legs=legs, builds=builds, skipped=plan.skipped + left_out)


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


class _Planner:
    """What all legs of one plan share: machines, keys, caches, times. Each is worked out once for all legs alike."""

    def __init__(self, manifest: Manifest, event: str, *, trusted: bool, timings: Timings) -> None:
        self._manifest = manifest
        self._event = event
        self._trusted = trusted
        self._timings = timings
        self._build_of: dict[str, Build] = {}
        self.quarantine = Quarantine(manifest.quarantine)
        self.builds: dict[str, Build] = {}

    def leg(self, family: Family, battery: Battery, lanes: tuple[LaneSpec, ...], *, backend: str, subject: str) -> Leg:
        """One leg; its build is remembered."""
        manifest = self._manifest
        files = family.weight_files if subject == "weights" and family.unpinned is None else ()
        size = sum(file.size or 0 for file in files)
        leg_id = f"{family.family}@{backend}"
        needs = needs_of(size, backend)
        runner = choose(manifest.runners, leg=leg_id, backend=backend, needs=needs, trusted=self._trusted)
        build = self._build(runner)
        key = None
        if files:
            version, prefix = manifest.pin.cache_version, manifest.caches.prefix
            key = model_key(family.family, files, os=runner.os, cache_version=version, prefix=prefix).text
        cost = estimate(leg_id, lanes, subject=subject, size=size, backend=backend, timings=self._timings)
        # Never less than what is expected: a time-out may come late, but not before the work is done.
        slack = SLACK if cost.source == "measured" else 1
        minutes = max(battery.timeout.minutes(size), -(-slack * cost.seconds // 60))
        return Leg(
            id=leg_id,
            family=family,
            backend=backend,
            subject=subject,
            lanes=lanes,
            runner=runner.name,
            runs_on=runner.labels,
            timeout_minutes=limits.cap_minutes(minutes, self_hosted=runner.self_hosted),
            build_key=build.key,
            model_key=key,
            files=files,
            cache=choose_cache(manifest.caches, size, runner),
            estimate=cost,
        )

    def _build(self, target: RunnerClass) -> Build:
        known = self._build_of.get(target.name)
        if known is None:
            runner = builder(self._manifest.runners, target)
            key = build_key(self._manifest.pin, runner, prefix=self._manifest.caches.prefix)
            known = Build(
                key=key.text,
                artifact=key.artifact_name,
                backend=runner.backend,
                os=runner.os,
                arch=runner.arch,
                runner=runner.name,
                runs_on=runner.labels,
                timeout_minutes=BUILD_MINUTES,
            )
            self._build_of[target.name] = known
        self.builds[known.key] = known
        return known


def _no_battery(family: Family, event: str) -> str:
    if not family.standalone:
        return (
            "a shared helper, projector or draft model, never a leg of its own; certify a family that is built with it"
        )
    if family.tier is None:
        return f"in no tier; `matrixgen move {family.family} --tier N` gives it one, {BY_HAND} runs it by its full name"
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
