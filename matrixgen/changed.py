"""Which legs a change affects, and why. The plans before and after are compared in meaning, all other files by their path.

A path that no rule knows affects every leg: the question is whether a leg may be left out, and absent is not green.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from matrixgen.battery import LANES
from matrixgen.diff import leg_changes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrixgen.leg import Plan

EVERY = "every"
NONE = "none"
COMPARED = "compared"
LANE = "lane"


class PathRule(NamedTuple):
    """What a change below `start` (or of files that end with it, for `*.x`) does."""

    start: str
    effect: str
    why: str


#: The first rule that matches decides.
PATH_RULES = (
    PathRule("manifests/schema/", NONE, "schemas describe the manifest, the plans are compared"),
    PathRule("manifests/contracts.json", LANE, "contract"),
    PathRule("manifests/", COMPARED, "the plans are compared"),
    PathRule("agent/gate/", NONE, "it judges receipts, legs do not run it"),
    PathRule("agent/reporters/", NONE, "it prints, legs do not decide by it"),
    PathRule("agent/", EVERY, "code that every leg runs"),
    PathRule("matrixgen/", EVERY, "the planner itself"),
    PathRule("third_party/llama.cpp/", EVERY, "pin or patch queue"),
    PathRule(".github/cache-version.txt", EVERY, "all caches are dropped"),
    PathRule(".github/", EVERY, "how legs are run"),
    PathRule("actions/", EVERY, "how legs are run"),
    PathRule(".ci/", EVERY, "what is installed for the legs"),
    PathRule("pyproject.toml", EVERY, "what is installed for the legs"),
    PathRule("docs/", NONE, "words"),
    PathRule("tests/", NONE, "legs do not run it"),
    PathRule("*.md", NONE, "words"),
    PathRule("mkdocs.yml", NONE, "words"),
    PathRule("justfile", NONE, "legs do not run it"),
    PathRule("LICENSE", NONE, "words"),
    PathRule(".gitignore", NONE, "legs do not run it"),
)
UNKNOWN = PathRule("", EVERY, "no rule knows this path")
MOST_REASONS = 5


def rule_for(path: str) -> PathRule:
    """The rule that decides what a change of `path` (relative, with `/`) does."""
    if path.startswith("agent/lanes/") and path.endswith(".py"):
        lane = path.removeprefix("agent/lanes/").removesuffix(".py").replace("_", "-")
        if lane in LANES:
            return PathRule(path, LANE, lane)
    for rule in PATH_RULES:
        known = path.endswith(rule.start[1:]) if rule.start.startswith("*") else path.startswith(rule.start)
        if known:
            return rule
    return UNKNOWN


def affected(before: Plan | None, after: Plan, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Leg id -> reasons, for each leg of `after` that the change affects.

    `before` is the plan that the old manifest gives for the same selection; None where the old manifest cannot be read, which
    affects every leg.
    """
    reasons: dict[str, list[str]] = {leg.id: [] for leg in after.legs}
    old = {leg.id: leg for leg in before.legs} if before else {}
    for leg in after.legs:
        if before is None:
            reasons[leg.id].append("the manifest of that revision cannot be read by this version")
        elif leg.id not in old:
            reasons[leg.id].append("the leg is new")
        else:
            reasons[leg.id] += leg_changes(old[leg.id], leg)
    for path in sorted(set(paths)):
        rule = rule_for(path)
        for leg in after.legs:
            if rule.effect == EVERY or (rule.effect == LANE and any(lane.name == rule.why for lane in leg.lanes)):
                why = f"code or record of lane {rule.why}" if rule.effect == LANE else rule.why
                reasons[leg.id].append(f"{path}: {why}")
    return {leg_id: _short(found) for leg_id, found in reasons.items() if found}


def _short(found: Sequence[str]) -> tuple[str, ...]:
    if len(found) <= MOST_REASONS:
        return tuple(found)
    return (*found[: MOST_REASONS - 1], f"and {len(found) - MOST_REASONS + 1} more")
