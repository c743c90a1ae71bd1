"""What two plans differ in, in meaning: legs added, dropped, moved and changed, keys, bytes and minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrixgen.leg import Leg, Plan

GB = 10**9


class Move(NamedTuple):
    """A family whose tier changed."""

    family: str
    before: int | None
    after: int | None


class Totals(NamedTuple):
    """Bytes to fetch and estimated seconds of one runner class."""

    legs: int
    size: int
    seconds: int


class PlanDiff(NamedTuple):
    """All differences. `changed` maps the id of a leg that both plans have to what is different in it."""

    added: tuple[Leg, ...]
    dropped: tuple[Leg, ...]
    moved: tuple[Move, ...]
    changed: Mapping[str, tuple[str, ...]]
    new_builds: tuple[str, ...]
    old_builds: tuple[str, ...]
    new_models: tuple[str, ...]
    pin: tuple[str, ...]
    before: Mapping[str, Totals]
    after: Mapping[str, Totals]

    @property
    def same(self) -> bool:
        """True when nothing differs."""
        return not (self.added or self.dropped or self.moved or self.changed or self.pin)

    @property
    def families(self) -> set[str]:
        """Families with a leg that differs."""
        legs = {leg.family.family for leg in (*self.added, *self.dropped)}
        return legs | {leg_id.rpartition("@")[0] for leg_id in self.changed} | {move.family for move in self.moved}


def diff_plans(before: Plan, after: Plan) -> PlanDiff:
    """The differences from `before` to `after`."""
    old, new = ({leg.id: leg for leg in plan.legs} for plan in (before, after))
    changes = {leg_id: leg_changes(old[leg_id], leg) for leg_id, leg in new.items() if leg_id in old}
    tiers = [{leg.family.family: leg.family.tier for leg in plan.legs} for plan in (before, after)]
    old_builds, new_builds = ({build.key for build in plan.builds} for plan in (before, after))
    models = {leg.model_key for leg in before.legs}
    return PlanDiff(
        added=tuple(leg for leg_id, leg in new.items() if leg_id not in old),
        dropped=tuple(leg for leg_id, leg in old.items() if leg_id not in new),
        moved=tuple(
            Move(name, tier, tiers[1][name])
            for name, tier in sorted(tiers[0].items())
            if name in tiers[1] and tiers[1][name] != tier
        ),
        changed={leg_id: tuple(found) for leg_id, found in changes.items() if found},
        new_builds=tuple(sorted(new_builds - old_builds)),
        old_builds=tuple(sorted(old_builds - new_builds)),
        new_models=tuple(sorted({leg.model_key for leg in after.legs if leg.model_key} - models)),
        pin=tuple(_pin_changes(before, after)),
        before=_totals(before),
        after=_totals(after),
    )


def leg_changes(before: Leg, after: Leg) -> list[str]:
    """What is different in a leg, one short sentence each; empty when nothing is that the leg binds."""
    found = []
    if before.family != after.family:
        rows = before.family.to_row(), after.family.to_row()
        keys = [key for key in rows[0] if rows[0][key] != rows[1][key]]
        found.append(f"the row changed: {', '.join(keys)}")
    if before.subject != after.subject:
        found.append(f"{before.subject} -> {after.subject}")
    found += _lane_changes(before, after)
    if before.build_key != after.build_key:
        found.append("other binaries (build key)")
    if before.model_key != after.model_key:
        found.append("other files (model key)")
    if before.runner != after.runner:
        found.append(f"runner {before.runner} -> {after.runner}")
    if before.timeout_minutes != after.timeout_minutes:
        found.append(f"time-out {before.timeout_minutes} -> {after.timeout_minutes} min")
    if before.cache.store != after.cache.store:
        found.append(f"cache {before.cache.store} -> {after.cache.store}")
    return found


def _lane_changes(before: Leg, after: Leg) -> list[str]:
    old, new = ({lane.name: dict(lane.params) for lane in leg.lanes} for leg in (before, after))
    found = []
    if added := [name for name in new if name not in old]:
        found.append(f"lanes added: {', '.join(added)}")
    if dropped := [name for name in old if name not in new]:
        found.append(f"lanes dropped: {', '.join(dropped)}")
    if changed := [name for name in new if name in old and new[name] != old[name]]:
        found.append(f"lane parameters changed: {', '.join(changed)}")
    return found


def _pin_changes(before: Plan, after: Plan) -> list[str]:
    old, new = before.pin.to_json(), after.pin.to_json()
    found = [
        f"{key}: {old[key]} -> {new[key]}"
        for key in ("commit", "version", "toolchain_epoch", "cache_version")
        if old[key] != new[key]
    ]
    if before.pin.binding != after.pin.binding:
        found.append(f"binding: {' '.join(before.pin.binding[:2])} -> {' '.join(after.pin.binding[:2])}")
    patches = [{patch.name: patch.sha256 for patch in plan.pin.patches} for plan in (before, after)]
    for name in sorted(patches[0].keys() | patches[1].keys()):
        if patches[0].get(name) != patches[1].get(name):
            word = "added" if name not in patches[0] else "dropped" if name not in patches[1] else "edited"
            found.append(f"patch {name} {word}")
    if not found and before.pin != after.pin:
        found.append("order of the patches")
    return found


def _totals(plan: Plan) -> dict[str, Totals]:
    totals: dict[str, Totals] = {}
    for leg in plan.legs:
        known = totals.get(leg.runner, Totals(0, 0, 0))
        totals[leg.runner] = Totals(known.legs + 1, known.size + leg.size, known.seconds + leg.estimate.seconds)
    return dict(sorted(totals.items()))
