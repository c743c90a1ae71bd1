"""Rules about quarantine.json: nothing stays there for ever, or for nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrixgen.findings import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrixgen.content import Manifest


def entries_name_something(manifest: Manifest) -> Iterator[Problem]:
    """An entry is about a family and a backend that there are."""
    names = {family.family for family in manifest.families} if manifest.quarantine else set()
    offered = sorted({runner.backend for runner in manifest.runners})
    for index, entry in enumerate(manifest.quarantine):
        if entry.family not in names:
            what = f"families.json has no row {entry.family}"
            yield _at(index, "family", "MG031", what, "correct the name, or remove the entry with the family")
        if entry.backend is not None and entry.backend not in offered:
            what = f"no runner class offers {entry.backend}"
            yield _at(index, "backend", "MG031", what, f"null for all, or one of {', '.join(offered)}")


def entries_are_distinct(manifest: Manifest) -> Iterator[Problem]:
    """One leg, one entry: two could say different days."""
    seen: set[tuple[str, str | None]] = set()
    for index, entry in enumerate(manifest.quarantine):
        leg = (entry.family, entry.backend)
        if leg in seen or (entry.backend is not None and (entry.family, None) in seen):
            yield _at(index, "family", "MG032", f"{entry.family} is in quarantine already", "keep one of the entries")
        seen.add(leg)


def days_exist(manifest: Manifest) -> Iterator[Problem]:
    """The last day is a day of the calendar."""
    for index, entry in enumerate(manifest.quarantine):
        from datetime import date

        try:
            date.fromisoformat(entry.expires)
        except ValueError:
            yield _at(index, "expires", "MG033", f"there is no day {entry.expires}", "write YYYY-MM-DD")


def expired(manifest: Manifest, today: str) -> Iterator[Problem]:
    """After its last day an entry is an error: somebody decides anew, and nothing is skipped for ever."""
    for index, entry in enumerate(manifest.quarantine):
        if entry.expired(today):
            what = f"the quarantine of {entry.family} ended on {entry.expires} ({entry.ticket})"
            yield _at(index, "expires", "MG034", what, "remove the entry, or give a new day with a new reason")


def _at(index: int, key: str, id_: str, message: str, fix: str) -> Problem:
    return Problem(id_, "quarantine.json", f"/quarantine/{index}/{key}", message, fix)


RULES = (entries_name_something, entries_are_distinct, days_exist)
