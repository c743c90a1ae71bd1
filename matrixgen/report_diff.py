"""A difference of plans as Markdown, for a comment on a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrixgen.diff import Totals
from matrixgen.limits import fit_summary
from matrixgen.report import count, gigabytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrixgen.diff import PlanDiff
    from matrixgen.leg import Leg

NOTHING = Totals(0, 0, 0)
LONG = 40  # rows of a list before it is folded away


def diff_markdown(diff: PlanDiff, *, event: str) -> str:
    """The whole comment. Every name in it matches the manifest's grammar, so none of them is Markdown."""
    if diff.same:
        return f"### Plan of `{event}`\n\nNo leg changes.\n"
    heads = [
        f"{count(len(diff.added), 'leg')} added",
        f"{len(diff.dropped)} dropped",
        f"{len(diff.changed)} changed",
        f"{count(len(diff.moved), 'family').replace('familys', 'families')} moved",
    ]
    parts = [f"### Plan of `{event}`", ", ".join(heads) + "."]
    if diff.pin:
        parts.append(_section("Pin", [f"* {line}" for line in diff.pin]))
    if diff.moved:
        rows = [f"| `{move.family}` | {_tier(move.before)} | {_tier(move.after)} |" for move in diff.moved]
        parts.append(_section("Moved", ["| family | from tier | to tier |", "|---|---|---|", *rows]))
    if diff.added:
        parts.append(_section("Added", _legs(diff.added)))
    if diff.dropped:
        parts.append(_section("Dropped", _legs(diff.dropped)))
    if diff.changed:
        rows = [f"| `{leg_id}` | {'; '.join(found)} |" for leg_id, found in diff.changed.items()]
        parts.append(_section("Changed", ["| leg | what |", "|---|---|", *rows]))
    parts.append(_section("Work", _work(diff)))
    if diff.new_builds or diff.new_models:
        sets = count(len(diff.new_models), "set")
        parts.append(
            f"New keys: {count(len(diff.new_builds), 'build')}, and {sets} of model files that no cache holds yet."
        )
    else:
        parts.append("No new key: every build and every set of model files is known already.")
    return fit_summary("\n\n".join(parts) + "\n")


def _work(diff: PlanDiff) -> list[str]:
    rows = ["| runner class | legs | download | estimated minutes |", "|---|---|---|---|"]
    for runner in sorted(diff.before.keys() | diff.after.keys()):
        old, new = diff.before.get(runner, NOTHING), diff.after.get(runner, NOTHING)
        rows.append(
            f"| `{runner}` | {_change(old.legs, new.legs)} | {_change(gigabytes(old.size), gigabytes(new.size))} "
            f"| {_change(_minutes(old.seconds), _minutes(new.seconds))} |"
        )
    return rows


def _legs(legs: Sequence[Leg]) -> list[str]:
    rows = [
        f"| `{leg.id}` | {_tier(leg.family.tier)} | {leg.subject} | `{leg.runner}` | {gigabytes(leg.size) if leg.size else '-'} |"
        for leg in legs
    ]
    return ["| leg | tier | subject | runner class | download |", "|---|---|---|---|---|", *rows]


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join(_folded(title, lines))


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    if len(lines) <= LONG:
        yield from (f"#### {title}", "", *lines)
    else:
        yield from (f"<details><summary>{title}, {len(lines) - 2} rows</summary>", "", *lines, "", "</details>")


def _tier(tier: int | None) -> str:
    return "none" if tier is None else str(tier)


def _minutes(seconds: int) -> str:
    return str(-(-seconds // 60))


def _change(old: object, new: object) -> str:
    return str(new) if old == new else f"{old} -> {new}"
