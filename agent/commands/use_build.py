"""Put the libraries of a build under test, after they were verified and their structs compared with the binding's."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.binding.load import VARIABLE
from agent.build.abi import check_abi
from agent.build.archive import lend_build
from agent.build.record import LIBRARIES, BuildRecord
from agent.commands.open_store import StoreRequest, open_store
from agent.commands.planned_build import lend_planned, only_build, require_planned, why_not_of
from agent.errors import BuildInvalid, UsageError
from matrixgen.manifest import load_manifest
from matrixgen.plan import read_plan

PLANNED = "plan"


@dataclass(frozen=True, kw_only=True)
class BuildChoice:
    """Which build to test.

    Attributes:
        build: its archive or folder; the word `plan` for the one that the plan asks for; None for the binding's libraries.
        plan: the plan file, where there is one.
        leg_ids: the chosen legs of it; empty for all.
        manifests: folder of the manifests.
        store: where the build of the plan comes from.
    """

    build: Path | None
    plan: Path | None
    leg_ids: tuple[str, ...]
    manifests: Path | None
    store: StoreRequest


@contextlib.contextmanager
def use_build(choice: BuildChoice) -> Iterator[None]:
    """While this lasts, children load the libraries of the build with its layout; without one everything stays as it is.

    Raises:
        BuildInvalid: it is not what was built, not of the plan's pin, or its structs cannot be followed.
        FetchFailed: the build of the plan is nowhere to be had.
    """
    if choice.build is None:
        yield
        return
    with _lend(choice, choice.build) as (folder, record):
        _require_layout(choice.build.name, folder, record)
        with _environment(VARIABLE, str(folder / LIBRARIES)):
            yield


@contextlib.contextmanager
def _lend(choice: BuildChoice, chosen: Path) -> Iterator[tuple[Path, BuildRecord]]:
    if choice.plan is None:
        if str(chosen) == PLANNED:
            raise UsageError("--build plan takes the build of a plan: give one with --plan, or the archive of a build")
        with lend_build(chosen) as (folder, record):
            if why := why_not_of(load_manifest(choice.manifests).pin, record):
                sys.stderr.write(f"note: {chosen.name}: {why}; receipts of this run name the pin of the manifests\n")
            yield folder, record
        return
    plan = read_plan(choice.plan)
    planned = only_build(plan, choice.leg_ids)
    if str(chosen) == PLANNED:
        from agent.reporters.transfers import PlainTransfers

        with lend_planned(open_store(choice.store, PlainTransfers(sys.stderr)), plan, planned) as found:
            yield found.folder, found.record
        return
    with lend_build(chosen) as (folder, record):
        require_planned(chosen.name, plan, planned, record)
        yield folder, record


def _require_layout(name: str, folder: Path, record: BuildRecord) -> None:
    report = check_abi(actual=record.layout, libraries=folder / LIBRARIES)
    if not report.ok:
        first = next((finding for finding in report.findings if finding.severity == "error"), None)
        words = f"{first}. {first.fix}" if first else "nothing could be compared"
        raise BuildInvalid(f"{name}: the binding does not fit this build, no model was opened: {words}")
    if report.followed:
        structs = ", ".join(report.followed)
        sys.stderr.write(f"note: {name}: {structs}: not as the binding has it; used as the build records it\n")


@contextlib.contextmanager
def _environment(variable: str, value: str) -> Iterator[None]:
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before
