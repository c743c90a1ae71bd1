"""The build that a plan asks for: its archive by the build key, from the store or from the sources that know files by name."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agent.build.archive import lend_build
from agent.build.ticket import MOST_BYTES, BuildTicket, ticket_name
from agent.errors import BuildInvalid, UsageError
from agent.store.wanted import Sought, Wanted

if TYPE_CHECKING:
    from agent.build.record import BuildRecord
    from agent.store.store import Store
    from matrixgen.leg import Build, Plan
    from matrixgen.pin import Pin

_REPO = "llama.cpp/builds"  # what messages call the place of an archive; no hub is asked for it


class PlannedBuild(NamedTuple):
    """A verified build: its archive, the folder that it was unpacked to, and its record."""

    archive: Path
    folder: Path
    record: BuildRecord


def only_build(plan: Plan, leg_ids: Collection[str]) -> Build:
    """The one build that the chosen legs of a plan wait for; without ids, all its legs.

    Raises:
        UsageError: they wait for several.
    """
    keys = {leg.build_key for leg in ([plan.leg(leg_id) for leg_id in leg_ids] or plan.legs)}
    if len(keys) != 1:
        raise UsageError(f"the legs wait for {len(keys)} builds, and one is tested at a time: choose legs with --leg")
    (key,) = keys
    return next(build for build in plan.builds if build.key == key)


@contextlib.contextmanager
def lend_planned(store: Store, plan: Plan, build: Build) -> Iterator[PlannedBuild]:
    """The build, verified: the archive has the digest that its ticket names, and holds what the plan asks for.

    Raises:
        BuildInvalid: the archive is not what was built, or not the build of the plan.
        FetchFailed: neither the store nor a source has it.
        NoSpace, StoreDenied, StoreBusy: the disk, its permissions, another process.
    """
    from agent.store.named import naming_sources, read_named

    naming = replace(store, sources=naming_sources(store))
    ticket = _kept_ticket(store, build.key)
    if ticket is None:
        sought = Sought(name=ticket_name(build.key), most=MOST_BYTES)
        ticket = read_named(naming, sought, partial(BuildTicket.parse, key=build.key))
    wanted = Wanted(repo=_REPO, revision=plan.pin.commit, path=ticket.file, size=ticket.size, sha256=ticket.sha256)
    with naming.lend([wanted]) as lent, lend_build(lent[wanted]) as (folder, record):
        require_planned(ticket.file, plan, build, record)
        if store.root.writable:  # kept only now, so that a wrong archive is not taken from the store for ever
            store.root.builds.mkdir(exist_ok=True)
            ticket.write(store.root.builds)
        yield PlannedBuild(lent[wanted], folder, record)


def require_planned(name: str, plan: Plan, build: Build, record: BuildRecord) -> None:
    """Compare what an archive records with what the plan asks for.

    Raises:
        BuildInvalid: another pin, queue, key or backend.
    """
    why = why_not_of(plan.pin, record)
    if not why and record.key != build.key:
        why = f"its build key is {record.key or 'empty'}, the legs wait for {build.key}"
    if not why and record.backend != build.backend:
        why = f"it is for {record.backend}, the legs are for {build.backend}"
    if why:
        raise BuildInvalid(
            f"{name}: {why}: take the build that was made for this plan (`skippy-agent build --plan --key`)"
        )


def why_not_of(pin: Pin, record: BuildRecord) -> str:
    """Why a build is not one of `pin`; empty if it is."""
    if record.commit != pin.commit:
        return f"it is of llama.cpp {record.commit or 'of unknown commit'}, the pin is {pin.commit}"
    if record.patches != tuple((patch.name, patch.sha256) for patch in pin.patches):
        return "its patches are not those of the pin"
    return ""


def _kept_ticket(store: Store, key: str) -> BuildTicket | None:
    """The ticket in the store, as long as its archive is there, too: another build of the same key may have replaced it."""
    try:
        ticket = BuildTicket.parse((store.root.builds / ticket_name(key)).read_bytes(), key)
    except (OSError, ValueError):
        return None
    return ticket if store.root.blob(ticket.sha256).is_file() else None
