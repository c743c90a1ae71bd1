"""The table of seeded faults: which lanes noticed, on which family."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from agent.reporters.console import make_console
from agent.selftest import Trial

_CAUGHT, _ABSENT, _MISSED = ("✗", "red"), ("·", "dim"), ("!", "bold yellow")


def print_faults(trials: Sequence[Trial]) -> None:
    """A row a fault, a column a family; then what was missed."""
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


def _mark(trial: Trial) -> Text:
    if not trial.applies:
        return Text(*_ABSENT)
    return Text(*(_MISSED if trial.missed else _CAUGHT))
