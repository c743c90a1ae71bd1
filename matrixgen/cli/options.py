"""Options that several commands share, and how their values become a manifest and a plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from matrixgen.leg import Plan
    from matrixgen.manifest import Manifest

EVENTS = "llama-bump, nightly, patch-edit, pull-request, radix-cache, release, manual-full"
PATH = click.Path(path_type=Path)
Command = Any  # a click command keeps its own type, whatever decorates it


def manifests_option(command: Command) -> Command:
    """`--manifests DIR`, as `root`."""
    return click.option(
        "--manifests",
        "root",
        metavar="DIR",
        type=PATH,
        help="Folder of families.json and its neighbours. [default: ./manifests, else the packaged copy]",
    )(command)


def selection_options(command: Command) -> Command:
    """What to plan; `plan_of` takes the values."""
    options = (
        click.option("--tier", "tiers", metavar="N", type=int, multiple=True, help="Only this tier. Repeatable."),
        click.option(
            "--event", metavar="NAME", default="llama-bump", show_default=True, help=f"What happened: {EVENTS}."
        ),
        click.option(
            "--family", "families", metavar="GLOB", multiple=True, help="Only families that match. Repeatable."
        ),
        click.option(
            "--backend",
            "backends",
            metavar="NAME",
            multiple=True,
            help="These backends instead of the battery's. Repeatable.",
        ),
        click.option("--subject", metavar="weights|twin", help="This subject instead of the battery's."),
        click.option(
            "--changed-from", metavar="REV", help="Only legs that the changes since this git revision affect."
        ),
        click.option("--timings", metavar="DIR", type=PATH, help="Receipts of earlier runs: measured times."),
        click.option("--allow-empty", is_flag=True, help="An empty selection is not an error."),
        manifests_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def load(root: Path | None) -> Manifest:
    """The manifest, as of today."""
    from matrixgen.manifest import load_manifest

    return load_manifest(root, today=today())


def today() -> str:
    """YYYY-MM-DD in UTC, only for the expiry of quarantine."""
    import time

    return time.strftime("%Y-%m-%d", time.gmtime())


def plan_of(manifest: Manifest, selection: dict[str, Any]) -> Plan:
    """The plan of the options, on hosted machines only where this process runs for a pull request of a fork."""
    from matrixgen.cli.context import foreign_code
    from matrixgen.plan import build_plan

    selection = dict(selection)
    changed_from, folder = selection.pop("changed_from", None), selection.pop("timings", None)
    if folder is not None:
        from matrixgen.receipts import read_receipts, timings_of

        receipts, wrong = read_receipts(folder)
        tell_left_out(wrong)
        selection["timings"] = timings_of(receipts)
    selection["trusted"] = foreign_code(os.environ) is None
    if changed_from is None:
        return build_plan(manifest, **selection)
    from matrixgen.cli.revision import changed_plan

    return changed_plan(manifest, changed_from, selection)


def tell_left_out(wrong: list[str]) -> None:
    """Say which receipts count for nothing."""
    for line in wrong:
        click.echo(f"left out: {line}", err=True)


def tell_skipped(plan: Plan) -> None:
    """Say what is not tested as asked, on standard error."""
    if plan.skipped:
        from matrixgen.report import skipped_lines

        click.echo("Not as asked:", err=True)
        click.echo("\n".join(skipped_lines(plan)), err=True)
