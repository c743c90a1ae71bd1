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
from agent.selftest import Trial, run_trials
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
        faults or FAULTS,
        twins=twin_folder(),
        contracts=load_contracts(manifest.root),
        jobs=jobs or os.cpu_count() or 1,
        on_trial=_tell if not as_json else lambda _trial: None,
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


def _tell(trial: Trial) -> None:
    if trial.missed:
        sys.stderr.write(f"missed: {trial.fault} on {trial.leg.family.family} by {', '.join(trial.missed)}\n")


def _show(trials: Sequence[Trial]) -> None:
    from rich.table import Table
    from rich.text import Text

    from agent.reporters.console import make_console

    console = make_console()
    names = list(dict.fromkeys(trial.fault for trial in trials))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("family")
    for number, _ in enumerate(names, 1):
        table.add_column(str(number), justify="center")
    by_family: dict[str, dict[str, Trial]] = {}
    for trial in trials:
        by_family.setdefault(trial.leg.family.family, {})[trial.fault] = trial
    for family, row in by_family.items():
        table.add_row(family, *(_cell(row[name]) for name in names))
    console.print(table)
    for number, name in enumerate(names, 1):
        console.print(
            Text(f"{number:>3} {name}: {FAULTS[name].description}; must be caught by {', '.join(FAULTS[name].lanes)}")
        )
    applied = [trial for trial in trials if trial.applies]
    lanes = sum(len(trial.caught) for trial in applied)
    missed = sum(len(trial.missed) for trial in applied)
    console.print(
        f"\n{len(applied)} faults seeded, {lanes} times caught by a lane, {missed} times missed; "
        f"{len(trials) - len(applied)} do not apply"
    )


def _cell(trial: Trial) -> str:
    if not trial.applies:
        return "[dim]-[/]"
    if trial.missed:
        return "[bold red]missed[/]"
    return f"[green]✓{len(trial.caught)}[/]"
