"""`validate`, `review`, `tombstones`: say what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from matrixgen.cli.options import PATH, load, manifests_option, today

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrixgen.findings import Finding

FORMATS = click.Choice(["text", "json", "github", "sarif"])
FORMAT_HELP = "text: for people. github: annotations of a workflow. sarif: for code scanning."


@click.command()
@manifests_option
@click.option("--format", "output_format", type=FORMATS, default="text", show_default=True, help=FORMAT_HELP)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def validate(root: Path | None, output_format: str, as_json: bool) -> None:
    """Check all manifest files, report everything at once."""
    from matrixgen import report
    from matrixgen.edit import form_finding
    from matrixgen.errors import ManifestInvalid
    from matrixgen.manifest import check_manifest, default_root

    where = default_root() if root is None else root
    findings, manifest = check_manifest(where, today=today())
    if manifest is not None:
        findings += form_finding(where)
    ok = manifest is not None
    rows = "" if manifest is None else f"{report.count(len(manifest.families), 'row')} in {where}: "
    _print(findings, "json" if as_json else output_format, folder=where, ok=ok, summary=rows)
    if not ok:
        raise SystemExit(ManifestInvalid.exit_code)


@click.command()
@click.option("--telemetry", metavar="FILE", type=PATH, required=True, help="CSV or JSON: requests by family.")
@click.option(
    "--share",
    metavar="PART",
    type=click.FloatRange(0, 1),
    default=0.001,
    show_default=True,
    help="From this part of all requests on, a family is in production.",
)
@manifests_option
def review(root: Path | None, telemetry: Path, share: float) -> None:
    """Compare the tiers with what is served.

    Prints the `move` commands that would bring them together.
    """
    from matrixgen import report
    from matrixgen import review as reviews
    from matrixgen.errors import InvalidValue, ManifestUnreadable
    from matrixgen.manifest import read_documents
    from matrixgen.rules import located
    from matrixgen.source import read_text

    try:
        text = read_text(telemetry)
    except ManifestUnreadable as error:
        raise InvalidValue(f"{error.problem}; give a CSV or JSON file") from None
    manifest = load(root)
    found = reviews.review(manifest, reviews.read_telemetry(telemetry.name, text), share=share)
    findings = located(found.problems, read_documents(manifest.root))
    if findings:
        click.echo(report.findings_text(findings))
    click.echo(report.summary(findings))
    if found.commands:
        click.echo("\n" + "\n".join(found.commands))
    if any(finding.severity == "error" for finding in findings):
        raise SystemExit(1)


@click.command()
@click.option("--checkout", "paths", metavar="PATH", type=PATH, multiple=True, help="Files or folders. Repeatable.")
@click.option("--release-notes", is_flag=True, help="Print the entry for the release notes instead.")
@click.option("--format", "output_format", type=FORMATS, default="text", show_default=True, help=FORMAT_HELP)
@manifests_option
def tombstones(root: Path | None, paths: tuple[Path, ...], release_notes: bool, output_format: str) -> None:
    """Find what still serves dropped families.

    Searches patches and capability tables of the product.
    """
    from matrixgen import tombstones as stones

    if release_notes:
        click.echo(stones.release_notes(load(root)), nl=False)
        return
    if not paths:
        raise click.UsageError("give the checkout with --checkout, or ask for --release-notes")
    found = stones.leftovers(load(root), paths)
    files = f"{found.searched} files searched: "
    _print(found.findings, output_format, folder=None, ok=not found.findings, summary=files)
    if found.findings:
        raise SystemExit(1)


def _print(findings: Sequence[Finding], output_format: str, *, folder: Path | None, ok: bool, summary: str) -> None:
    from matrixgen import report, report_findings

    prefix = "" if folder is None else f"{folder.as_posix()}/"
    match output_format:
        case "json":
            click.echo(report_findings.as_json(findings, ok=ok))
        case "sarif":
            click.echo(report_findings.sarif(findings, prefix))
        case "github":
            if findings:
                click.echo(report_findings.workflow_commands(findings, prefix))
            click.echo(summary + report.summary(findings))
        case _:
            if findings:
                click.echo(report.findings_text(findings))
            click.echo(summary + report.summary(findings))
