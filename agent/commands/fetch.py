"""`skippy-agent fetch`: the store is warmed, so that a leg finds everything there."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.open_store import StoreRequest, open_store
from agent.errors import StoreError, UsageError
from agent.store.wanted import Wanted, wanted_of
from matrixgen.errors import NothingSelected
from matrixgen.manifest import load_manifest
from matrixgen.plan import read_plan

if TYPE_CHECKING:
    from agent.store.progress import Progress
    from matrixgen.family import Family


def run(
    families: Sequence[str],
    *,
    plan_file: Path | None,
    leg_ids: Sequence[str],
    manifests: Path | None,
    store: StoreRequest,
    as_json: bool,
) -> int:
    """Fetch; returns the exit code, which is that of the first family that failed."""
    chosen = _choose(families, plan_file, leg_ids, manifests)
    wanted = {family.family: wanted_of(family) for family in chosen}
    from agent.reporters.transfers import show_transfers

    with show_transfers(sys.stderr) as progress:
        rows = _fetch_all(wanted, store, progress)
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        for row in rows:
            sys.stdout.writelines(f"{path}\n" for path in row["paths"])
            if row["error"]:
                sys.stderr.write(f"error: {row['family']}: {row['error']}\n")
    return max((row["exit_code"] for row in rows), default=0)


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
                    paths.extend(str(path) for path in lent.values())
        except StoreError as error:
            row |= {"error": str(error), "exit_code": error.exit_code}
        rows.append(row)
    return rows


def _choose(
    families: Sequence[str], plan_file: Path | None, leg_ids: Sequence[str], manifests: Path | None
) -> list[Family]:
    if plan_file and families:
        raise UsageError("--plan already says which families run: leave out FAMILY, and choose legs with --leg")
    if leg_ids and not plan_file:
        raise UsageError("--leg names a leg of a plan: give the plan with --plan")
    if plan_file:
        plan = read_plan(plan_file)
        legs = [plan.leg(leg_id) for leg_id in leg_ids] or plan.legs
        chosen = {leg.family.family: leg.family for leg in legs if leg.files}
        if not chosen:
            raise NothingSelected("no leg of the plan needs a file: legs on twins fetch nothing")
        return list(chosen.values())
    if not families:
        raise UsageError("nothing to fetch: name a family or a --plan")
    manifest = load_manifest(manifests)
    return [manifest.family(name) for name in dict.fromkeys(families)]
