"""Rules about pin.json, batteries.json and runners.json."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from matrixgen.battery import LANES, RESERVED, UNTRUSTED_EVENTS, Battery
from matrixgen.caches import GB, QUOTA_GB, cached_bytes
from matrixgen.findings import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrixgen.content import Manifest


def patches_are_ordered(manifest: Manifest) -> Iterator[Problem]:
    """Patches apply in the order of their names, as `git am` of a folder does."""
    names = [patch.name for patch in manifest.pin.patches]
    for index, (before, after) in enumerate(pairwise(names), 1):
        if after <= before:
            what = f"patch {after} comes after {before}"
            yield Problem("MG022", "pin.json", f"/patches/{index}/name", what, "sort by name and keep names unique")


def lanes_exist(manifest: Manifest) -> Iterator[Problem]:
    """A battery owes lanes that exist, with parameters that they have."""
    known = manifest.batteries.defaults
    for name in known:
        if name not in LANES:
            later = "is reserved and not implemented yet" if name in RESERVED else "does not exist"
            what = f"lane {name} {later}"
            yield Problem("MG023", "batteries.json", f"/lanes/{name}", what, f"one of {', '.join(LANES)}")
    for at, battery in _batteries(manifest):
        for name, override in battery.lanes.items():
            where = f"{at}/lanes/{name}"
            if name not in known:
                what = f"lane {name} has no entry under lanes"
                yield Problem("MG023", "batteries.json", where, what, f"one of {', '.join(known)}")
                continue
            for extra in sorted(override.keys() - known[name].keys()):
                fix = f"one of {', '.join(known[name]) or 'none'}"
                what = f"lane {name} has no parameter {extra}"
                yield Problem("MG024", "batteries.json", f"{where}/{extra}", what, fix)


def tombstones_owe_refusal(manifest: Manifest) -> Iterator[Problem]:
    """Tier 3 owes the lane refuse and nothing else; no other tier owes it."""
    for event, tiers in manifest.batteries.events.items():
        for tier, battery in tiers.items():
            if (set(battery.lanes) == {"refuse"}) != (tier == 3) or ("refuse" in battery.lanes) != (tier == 3):
                at = f"/events/{event}/{tier}/lanes"
                what = f"tier {tier} owes {', '.join(battery.lanes)}"
                yield Problem("MG023", "batteries.json", at, what, "only tier 3 owes refuse, and it owes nothing else")


def backends_are_offered(manifest: Manifest) -> Iterator[Problem]:
    """A battery asks for backends that a runner class has."""
    offered = sorted({runner.backend for runner in manifest.runners})
    for at, battery in _batteries(manifest):
        for index, backend in enumerate(battery.backends):
            if backend not in offered:
                what = f"no runner class offers {backend}"
                yield Problem("MG025", "batteries.json", f"{at}/backends/{index}", what, f"one of {', '.join(offered)}")


def untrusted_events_get_twins(manifest: Manifest) -> Iterator[Problem]:
    """A fork's pull request never reaches weights or a self-hosted machine."""
    hosted = sorted({runner.backend for runner in manifest.runners if not runner.self_hosted})
    for event in UNTRUSTED_EVENTS:
        for at, battery in _batteries(manifest, event):
            if battery.subject != "twin":
                what = f"{event} may run code of a fork and asks for {battery.subject}"
                yield Problem("MG026", "batteries.json", f"{at}/subject", what, "write twin")
            for index, backend in enumerate(battery.backends):
                if backend not in hosted:
                    what = f"{event} may run code of a fork and no hosted class offers {backend}"
                    fix = f"one of {', '.join(hosted) or 'none'}"
                    yield Problem("MG026", "batteries.json", f"{at}/backends/{index}", what, fix)


def runner_classes_are_clear(manifest: Manifest) -> Iterator[Problem]:
    """Names are unique, and the self-hosted label says the same as the flag."""
    seen: set[str] = set()
    for index, runner in enumerate(manifest.runners):
        at = f"/runners/{index}"
        if runner.name in seen:
            what = f"{runner.name} is already the name of another class"
            yield Problem("MG027", "runners.json", f"{at}/name", what, "rename one of them")
        seen.add(runner.name)
        if runner.self_hosted != ("self-hosted" in runner.labels):
            what = f"{runner.name}: self_hosted is {str(runner.self_hosted).lower()} and the labels say otherwise"
            yield Problem("MG028", "runners.json", f"{at}/labels", what, "correct the labels or the flag")


def caches_fit(manifest: Manifest) -> Iterator[Problem]:
    """What the tiers keep in GitHub's caches fits: above the quota each set pushes out another, and nothing is ever found."""
    caches = manifest.caches
    systems = len({runner.os for runner in manifest.runners if not runner.self_hosted})
    total = cached_bytes(caches, manifest.families, systems) / GB
    if total > min(caches.budget_gb, QUOTA_GB):
        impossible = total > QUOTA_GB
        limit = f"the {QUOTA_GB} GB of a repository" if impossible else f"the budget of {caches.budget_gb:g} GB"
        what = f"model files of tier 1 and 2 take {total:.1f} GB of GitHub's caches, more than {limit}"
        fix = "lower it, so that larger sets come from s3 or the hub"
        yield Problem("MG035", "caches.json", "/largest_set_gb", what, fix, "error" if impossible else "warning")


def _batteries(manifest: Manifest, only: str | None = None) -> Iterator[tuple[str, Battery]]:
    for event, tiers in manifest.batteries.events.items():
        if only in (None, event):
            yield from ((f"/events/{event}/{tier}", battery) for tier, battery in tiers.items())


RULES = (
    patches_are_ordered,
    lanes_exist,
    tombstones_owe_refusal,
    backends_are_offered,
    untrusted_events_get_twins,
    runner_classes_are_clear,
    caches_fit,
)
