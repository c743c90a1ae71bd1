"""`skippy-agent fetch`: the store is warmed, so that a leg finds everything there."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.open_store import StoreRequest, open_store
from agent.errors import AgentError, StoreError, UsageError
from agent.store.wanted import Wanted, wanted_of
from matrixgen.errors import NothingSelected
from matrixgen.manifest import load_manifest
from matrixgen.plan import read_plan

if TYPE_CHECKING:
    from agent.store.progress import Progress
    from agent.store.store import Store
    from matrixgen.family import Family
    from matrixgen.leg import Plan


def run(
    families: Sequence[str],
    *,
    plan_file: Path | None,
    leg_ids: Sequence[str],
    builds: bool,
    manifests: Path | None,
    store: StoreRequest,
    as_json: bool,
) -> int:
    """Fetch; returns the exit code, which is that of the first family that failed."""
    if builds and not plan_file:
        raise UsageError("--builds are those of a plan: give the plan with --plan")
    chosen = _choose(families, plan_file, leg_ids, manifests, may_be_empty=builds)
    for family in chosen:
        if family.shape == "package":
            raise UsageError(
                f"{family.family} is package-backed and never fetched whole: say which stage, --stage START:END"
            )
    wanted = {family.family: wanted_of(family) for family in chosen}
    from agent.reporters.transfers import show_transfers

    with show_transfers(sys.stderr) as progress:
        rows = _fetch_all(wanted, store, progress)
        if builds and plan_file:
            rows += _fetch_builds(read_plan(plan_file), leg_ids, open_store(store, progress))
    return _report(rows, as_json=as_json)


def _report(rows: Sequence[dict[str, Any]], *, as_json: bool) -> int:
    """Print what was fetched, and what was not; returns the exit code."""
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        for row in rows:
            sys.stdout.writelines(f"{path}\n" for path in row["paths"])
            if row["error"]:
                sys.stderr.write(f"error: {row.get('build') or row['family']}: {row['error']}\n")
    return max((row["exit_code"] for row in rows), default=0)


def _fetch_builds(plan: Plan, leg_ids: Sequence[str], store: Store) -> list[dict[str, Any]]:
    """The builds that the legs wait for, verified member by member."""
    from agent.commands.planned_build import lend_planned

    keys = {leg.build_key for leg in ([plan.leg(leg_id) for leg_id in leg_ids] or plan.legs)}
    rows: list[dict[str, Any]] = []
    for build in plan.builds:
        if build.key not in keys:
            continue
        row: dict[str, Any] = {"family": None, "build": build.key, "paths": [], "error": None, "exit_code": 0}
        try:
            with lend_planned(store, plan, build) as lent:
                row["paths"] = [str(lent.archive)]
        except AgentError as error:
            row |= {"error": str(error), "exit_code": error.exit_code}
        rows.append(row)
    return rows


def run_stage(
    families: Sequence[str], stage: str, *, manifests: Path | None, store: StoreRequest, as_json: bool
) -> int:
    """Fetch one stage of the families' layer packages; returns the exit code, that of the first family that failed."""
    from agent.package.stage import parse_range
    from agent.reporters.transfers import show_transfers

    start, end = parse_range(stage)
    chosen = _choose(families, None, (), manifests)
    with show_transfers(sys.stderr) as progress:
        rows = [_fetch_stage(family, start, end, open_store(store, progress)) for family in chosen]
    return _report(rows, as_json=as_json)


def _fetch_stage(family: Family, start: int, end: int, store: Store) -> dict[str, Any]:
    from agent.package.fetch import lend_stage

    row: dict[str, Any] = {"family": family.family, "paths": [], "error": None, "exit_code": 0}
    try:
        with lend_stage(store, family, start, end) as lent:
            row |= {
                "paths": [str(path) for path in lent.files],
                "package": str(lent.package.folder),
                "stage": [lent.stage.start, lent.stage.end],
                "layers": list(lent.stage.layers),
                "bytes": lent.stage.size,
            }
    except AgentError as error:
        row |= {"error": str(error), "exit_code": error.exit_code}
    return row


def _fetch_all(
    wanted: dict[str, tuple[tuple[Wanted, ...], ...]], request: StoreRequest, progress: Progress
) -> list[dict[str, Any]]:
    store = open_store(request, progress)
    rows: list[dict[str, Any]] = []
    for family, sets in wanted.items():
        paths: list[str] = []
        row: dict[str, Any] = {"family": family, "paths": paths, "error": None, "exit_code": 0}
        try:
            for files in sets:
                with store.lend(files) as lent:
                    # the view of a store that may only be read is gone when this command ends
                    paths.extend(str(path if store.root.writable else path.resolve()) for path in lent.values())
        except StoreError as error:
            row |= {"error": str(error), "exit_code": error.exit_code}
        rows.append(row)
    return rows


def _choose(
    families: Sequence[str],
    plan_file: Path | None,
    leg_ids: Sequence[str],
    manifests: Path | None,
    *,
    may_be_empty: bool = False,
) -> list[Family]:
    if plan_file and families:
        raise UsageError("--plan already says which families run: leave out FAMILY, and choose legs with --leg")
    if leg_ids and not plan_file:
        raise UsageError("--leg names a leg of a plan: give the plan with --plan")
    if plan_file:
        plan = read_plan(plan_file)
        legs = [plan.leg(leg_id) for leg_id in leg_ids] or plan.legs
        chosen = {leg.family.family: leg.family for leg in legs if leg.files}
        if not chosen and not may_be_empty:
            raise NothingSelected("no leg of the plan needs a file: legs on twins fetch nothing")
        return list(chosen.values())
    if not families:
        raise UsageError("nothing to fetch: name a family or a --plan")
    manifest = load_manifest(manifests)
    return [manifest.family(name) for name in dict.fromkeys(families)]
