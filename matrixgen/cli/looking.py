"""`explain`, `costs`, `inventory`, `download-commands`, `schema`: look, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from matrixgen.cli.options import PATH, load, manifests_option, tell_left_out


@click.command()
@click.argument("family")
@manifests_option
def explain(root: Path | None, family: str) -> None:
    """Say why FAMILY is planned as it is.

    The line of the manifest, the reason, the machines that hold it, and for every event the legs, lanes and keys.
    """
    from matrixgen.explain import explain as text
    from matrixgen.manifest import read_documents

    manifest = load(root)
    manifest.family(family)
    document = read_documents(manifest.root)["families"]
    index = next(number for number, row in enumerate(manifest.families) if row.family == family)
    click.echo(text(manifest, family, line=document.line(f"/families/{index}", document.lines())))


@click.command()
@click.option("--timings", metavar="DIR", type=PATH, required=True, help="Folder of receipts.")
@manifests_option
def costs(root: Path | None, timings: Path) -> None:
    """Compare the cost model with the times in receipts."""
    from matrixgen.receipts import read_receipts
    from matrixgen.report_costs import costs_table

    receipts, wrong = read_receipts(timings)
    tell_left_out(wrong)
    click.echo(costs_table(load(root), receipts))


@click.command()
@click.option("--llama-src", metavar="DIR", type=PATH, required=True, help="Root of a llama.cpp checkout.")
@click.option("--gate", is_flag=True, help="A P0 or P1 family without evidence is an error.")
@click.option("--missing-only", is_flag=True, help="Print findings only.")
@click.option("--priority", type=click.Choice(["p0", "p1", "p2"]), help="List this priority only.")
@manifests_option
def inventory(root: Path | None, llama_src: Path, gate: bool, missing_only: bool, priority: str | None) -> None:
    """Join the models of llama.cpp with the manifest.

    Every model file of the checkout must have a row, and every row of tier 1 or 2 its model file.
    """
    from matrixgen import report
    from matrixgen.inventory import take_inventory
    from matrixgen.manifest import read_documents
    from matrixgen.rules import located

    manifest = load(root)
    found = take_inventory(manifest, llama_src, gate=gate)
    findings = located(found.problems, read_documents(manifest.root))
    if not missing_only:
        click.echo(report.inventory_table(found.models, priority))
    if findings:
        click.echo(report.findings_text(findings))
    covered = sum(bool(rows) for rows in found.models.values())
    click.echo(f"{covered} of {len(found.models)} model files have a row: {report.summary(findings)}")
    if any(finding.severity == "error" for finding in findings):
        raise SystemExit(1)


@click.command()
@click.option("--tier", "tiers", metavar="N", type=int, multiple=True, help="Only this tier. Repeatable.")
@click.option("--family", "families", metavar="GLOB", multiple=True, help="Only families that match. Repeatable.")
@click.option("--priority", type=click.Choice(["p0", "p1", "p2"]), help="Only this priority.")
@manifests_option
def download_commands(root: Path | None, tiers: tuple[int, ...], priority: str | None, **options: Any) -> None:
    """Print `hf download` lines with exact revisions."""
    from matrixgen.downloads import download_lines
    from matrixgen.errors import NothingSelected
    from matrixgen.plan import select

    rows = [
        family
        for family in select(load(root).families, options["families"])
        if (not tiers or family.tier in tiers) and priority in (None, family.priority)
    ]
    if not rows:
        raise NothingSelected("no row has this tier and priority; leave one of the options out")
    click.echo("\n".join(download_lines(rows)))


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
def schema(name: str | None) -> None:
    """Print a file's JSON Schema; without NAME, list them."""
    import json

    from matrixgen import schema as schemas

    if name is None:
        for known in schemas.NAMES:
            click.echo(f"{known.ljust(12)}{schemas.packaged_root() / 'schema' / f'{known}.schema.json'}")
    elif name in schemas.NAMES:
        click.echo(json.dumps(schemas.load_schema(schemas.packaged_root(), name), indent=2))
    else:
        raise click.UsageError(f"no schema {name[:40]!r}; one of {', '.join(schemas.NAMES)}")
