"""`skippy-agent selftest`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from agent.commands.folders import twin_folder
from agent.contracts import load_contracts
from agent.errors import FaultUnknown
from agent.faults.catalog import FAULTS
from agent.selftest import Trial, run_trials
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
        _show(trials)
    return 1 if missed or not applied else 0


def _tell(leg: Leg) -> None:
    sys.stderr.write(f"{leg.family.family} done\n")


def _show(trials: Sequence[Trial]) -> None:
    """A row a fault, a column a family; then what was missed."""
    from rich.table import Table

    from agent.reporters.console import make_console

    console = make_console()
    families = list(dict.fromkeys(trial.leg.family.family for trial in trials))
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("seeded fault", no_wrap=True)
    for number, _ in enumerate(families, 1):
        table.add_column(str(number), justify="center", no_wrap=True)
    for fault in dict.fromkeys(trial.fault for trial in trials):
        table.add_row(fault, *(_mark(trial) for trial in trials if trial.fault == fault))
    console.print(table)
    console.print(Text("  ".join(f"{number} {family}" for number, family in enumerate(families, 1)), style="dim"))
    console.print(Text.assemble(_CAUGHT, " red, as it must be   ", _ABSENT, " cannot show here   ", _MISSED, " missed"))
    applied = [trial for trial in trials if trial.applies]
    for trial in applied:
        for lane in trial.missed:
            console.print(Text(f"! {trial.leg.family.family}: {lane} did not notice", style="bold yellow"))
    lanes, missed = sum(len(trial.caught) for trial in applied), sum(len(trial.missed) for trial in applied)
    console.print(f"\n{len(applied)} faults seeded; lanes turned red {lanes} times and missed {missed}")


_CAUGHT, _ABSENT, _MISSED = ("✗", "red"), ("·", "dim"), ("!", "bold yellow")


def _mark(trial: Trial) -> Text:
    if not trial.applies:
        return Text(*_ABSENT)
    return Text(*(_MISSED if trial.missed else _CAUGHT))
