"""The command line. Commands only translate: they call the core, and print what it returns.

Heavy imports happen inside the commands, so that `--help` stays instant.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from matrixgen import __version__
from matrixgen.errors import ManifestInvalid, MatrixgenError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matrixgen.leg import Plan
    from matrixgen.manifest import Manifest

CLOSED_PIPE = 141  # what a shell shows for a program that SIGPIPE ended
EVENTS = "llama-bump, nightly, patch-edit, pull-request, release, manual-full"


def _manifests_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--manifests",
        "root",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Folder of families.json and its neighbours. [default: ./manifests, else the packaged copy]",
    )(command)


def _selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--tier", "tiers", metavar="N", type=int, multiple=True, help="Only this tier. Repeatable."),
        click.option(
            "--event", metavar="NAME", default="llama-bump", show_default=True, help=f"What happened: {EVENTS}."
        ),
        click.option(
            "--family",
            "families",
            metavar="GLOB",
            multiple=True,
            help="Only families that match. Repeatable.",
        ),
        click.option(
            "--backend",
            "backends",
            metavar="NAME",
            multiple=True,
            help="These backends instead of the battery's. Repeatable.",
        ),
        click.option("--subject", metavar="weights|twin", help="This subject instead of the battery's."),
        click.option("--allow-empty", is_flag=True, help="An empty selection is not an error."),
        _manifests_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="matrixgen")
@click.pass_context
def cli(context: click.Context) -> None:
    """Turn the tier manifest and the llama.cpp pin into plans and GitHub Actions job matrices."""
    if os.environ.get("NO_COLOR"):
        context.color = False


@cli.command()
@_selection_options
@click.option("--plan", "plan_path", metavar="PATH", type=click.Path(path_type=Path), help="Also write the plan here.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "github", "table", "names"]),
    default="json",
    show_default=True,
    help="json: the matrix. github: all outputs as GITHUB_OUTPUT takes them. table: for people. names: leg ids.",
)
def emit(root: Path | None, plan_path: Path | None, output_format: str, **selection: Any) -> None:
    """Print the job matrix of an event.

    Where GITHUB_OUTPUT is set, matrix, builds, has_legs, count and plan_digest are appended to it as well.
    """
    from matrixgen import matrix

    plan = _plan(_load(root), selection)
    values = matrix.github_outputs(plan)
    if plan_path is not None:
        from matrixgen.planfile import write_plan

        write_plan(plan, plan_path)
    if target := os.environ.get("GITHUB_OUTPUT"):
        from matrixgen.outputs import append_outputs

        append_outputs(Path(target), values)
    match output_format:
        case "github":
            from matrixgen.outputs import frame

            click.echo(frame(values), nl=False)
        case "table":
            from matrixgen.report import plan_table

            click.echo(plan_table(plan))
        case "names":
            click.echo("".join(f"{leg.id}\n" for leg in plan.legs), nl=False)
        case _:
            click.echo(values["matrix"])
    if output_format != "table":
        _echo_skipped(plan)


@cli.command()
@_selection_options
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write here. [default: print]")
def plan(root: Path | None, output: Path | None, **selection: Any) -> None:
    """Write the whole plan: every leg that must report, with all digests."""
    from matrixgen import report
    from matrixgen.planfile import plan_text, write_plan

    made = _plan(_load(root), selection)
    if output is None:
        click.echo(plan_text(made), nl=False)
        return
    write_plan(made, output)
    click.echo(f"{report.count(len(made.legs), 'leg')} in {output}, {made.digest}")
    _echo_skipped(made)


@cli.command()
@_manifests_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def validate(root: Path | None, as_json: bool) -> None:
    """Check all manifest files and report everything that is wrong, at once."""
    from matrixgen import report
    from matrixgen.edit import form_finding
    from matrixgen.manifest import check_manifest, default_root

    where = default_root() if root is None else root
    findings, manifest = check_manifest(where)
    if manifest is not None:
        findings += form_finding(where)
    if as_json:
        import json

        ok = manifest is not None
        click.echo(json.dumps({"ok": ok, "findings": [finding.to_json() for finding in findings]}, indent=1))
    else:
        if findings:
            click.echo(report.findings_text(findings))
        rows = "" if manifest is None else f"{report.count(len(manifest.families), 'row')} in {where}: "
        click.echo(rows + report.summary(findings))
    if manifest is None:
        raise SystemExit(ManifestInvalid.exit_code)


@cli.command()
@click.argument("family")
@click.option(
    "--tier", required=True, type=click.Choice(["1", "2", "3", "null"]), help="The new tier; null is in no tier."
)
@_manifests_option
def move(family: str, tier: str, root: Path | None) -> None:
    """Move FAMILY to another tier: one line of families.json changes."""
    from matrixgen import edit
    from matrixgen.manifest import default_root

    where = default_root() if root is None else root
    target = None if tier == "null" else int(tier)
    old, line = edit.move(where, family, target)
    if old == target:
        click.echo(f"{family} is already in tier {tier}; nothing changed")
        return
    click.echo(f"{family}: tier {'null' if old is None else old} -> {tier} in {where / 'families.json'}")
    click.echo(line if len(line) <= 120 else f"{line[:117]}...")


@cli.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when something would change.")
@_manifests_option
def fmt(check: bool, root: Path | None) -> None:
    """Write families.json in canonical form: one family a line, fixed key order, sorted by name."""
    from matrixgen import edit
    from matrixgen.files import write_atomically
    from matrixgen.manifest import default_root

    where = default_root() if root is None else root
    now, canonical = edit.formatted(where)
    path = where / "families.json"
    if now == canonical:
        click.echo(f"{path} is in canonical form")
    elif check:
        click.echo(f"{path} is not in canonical form; run `matrixgen fmt`")
        raise SystemExit(1)
    else:
        write_atomically(path, canonical)
        click.echo(f"{path} rewritten")


@cli.command()
@_selection_options
@click.option("--why", is_flag=True, help="Also print the parts that each key is made of.")
def keys(root: Path | None, why: bool, **selection: Any) -> None:
    """Print the build keys and the model-cache keys of an event."""
    from matrixgen import report
    from matrixgen.keys import plan_keys

    manifest = _load(root)
    click.echo(report.keys_text(plan_keys(manifest, _plan(manifest, selection)), why=why))


@cli.command()
@click.argument("name", required=False, type=click.Choice(["families", "pin", "batteries", "runners", "plan"]))
def schema(name: str | None) -> None:
    """Print the JSON Schema of a file; without NAME, list them."""
    import json

    from matrixgen import schema as schemas

    if name is None:
        for known in schemas.NAMES:
            click.echo(f"{known.ljust(10)}{schemas.packaged_root() / 'schema' / f'{known}.schema.json'}")
    else:
        click.echo(json.dumps(schemas.load_schema(schemas.packaged_root(), name), indent=2))


def _load(root: Path | None) -> Manifest:
    from matrixgen.manifest import load_manifest

    return load_manifest(root)


def _plan(manifest: Manifest, selection: dict[str, Any]) -> Plan:
    from matrixgen.plan import build_plan

    return build_plan(manifest, **selection)


def _echo_skipped(plan: Plan) -> None:
    if plan.skipped:
        from matrixgen.report import skipped_lines

        click.echo("Not as asked:", err=True)
        click.echo("\n".join(skipped_lines(plan)), err=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Every refusal becomes a message on standard error."""
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments), prog_name="matrixgen", standalone_mode=False
        )
    except ManifestInvalid as error:
        from matrixgen import report

        click.echo(report.findings_text(error.findings), err=True)
        click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
        return error.exit_code
    except MatrixgenError as error:
        click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BrokenPipeError:
        # The reader went away (`| head`); point stdout elsewhere so that the interpreter does not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    return result if isinstance(result, int) else 0


def main() -> None:
    """Entry point of the console script.

    A command is over in a moment, so garbage is not collected, and the interpreter is not taken apart at the end: both would
    take as long as the planning itself.
    """
    gc.disable()
    code = run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or CLOSED_PIPE
    os._exit(code)
