"""`skippy-agent selftest`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.commands.folders import twin_folder
from agent.contracts import load_contracts
from agent.errors import FaultUnknown
from agent.faults.catalog import FAULTS
from agent.selftest import run_trials
from matrixgen.leg import Leg
from matrixgen.manifest import load_manifest
from matrixgen.plan import build_plan


def run(
    families: Sequence[str],
    tiers: Sequence[int],
    faults: Sequence[str],
    *,
    jobs: int | None,
    manifests: Path | None,
    as_json: bool,
) -> int:
    """Seed faults and print the table; returns 1 if one was missed or if none applied."""
    for fault in faults:
        if fault not in FAULTS:
            raise FaultUnknown(f"no seeded fault is called {fault!r}; there are {', '.join(FAULTS)}")
    manifest = load_manifest(manifests)
    plan = build_plan(
        manifest,
        event="manual-full",
        tiers=() if families else tiers,
        families=families,
        backends=("cpu",),
        subject="twin",
    )
    trials = run_trials(
        plan.legs,
        tuple(faults or FAULTS),
        twins=twin_folder(),
        contracts=load_contracts(manifest.root),
        jobs=jobs or os.cpu_count() or 1,
        on_leg=_tell,
    )
    applied = [trial for trial in trials if trial.applies]
    missed = [trial for trial in applied if trial.missed]
    if as_json:
        rows = [
            {
                "family": t.leg.family.family,
                "fault": t.fault,
                "applies": t.applies,
                "caught": t.caught,
                "missed": t.missed,
            }
            for t in trials
        ]
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        from agent.reporters.fault_table import print_faults

        print_faults(trials)
    return 1 if missed or not applied else 0


def _tell(leg: Leg) -> None:
    sys.stderr.write(f"{leg.family.family} done\n")
