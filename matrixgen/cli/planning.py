"""`emit`, `plan`, `keys`, `diff`: what runs for an event."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from matrixgen.cli.options import PATH, load, manifests_option, plan_of, selection_options, tell_left_out, tell_skipped

if TYPE_CHECKING:
    from matrixgen.leg import Plan


@click.command()
@selection_options
@click.option("--plan", "plan_path", metavar="PATH", type=PATH, help="Also write the plan here.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["json", "github", "table", "names"]),
    default="json",
    show_default=True,
    help="json: the matrix. github: all outputs as GITHUB_OUTPUT takes them. table: for people. names: leg ids.",
)
@click.option(
    "--pack", metavar="MINUTES", type=click.IntRange(0, 360), default=0, help="Let small legs share jobs this long."
)
@click.option("--chunked", is_flag=True, help="Print a matrix of matrices of at most 256 jobs, as output `chunks`.")
@click.option("--chunk", metavar="NAME", help="Print the matrix of this chunk only, such as chunk-002.")
@click.option(
    "--only-missing", metavar="DIR", type=PATH, help="Only legs without a receipt of this plan that passed, below DIR."
)
@click.option(
    "--check-freshness",
    metavar="VERDICT",
    type=PATH,
    help="Fail when this verdict is too old: the schedule has stopped.",
)
@click.option(
    "--max-age-days",
    metavar="DAYS",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="For --check-freshness.",
)
def emit(root: Path | None, plan_path: Path | None, output_format: str, **options: Any) -> None:
    """Print the job matrix of an event.

    Where GITHUB_OUTPUT is set, matrix (or chunks), builds, has_legs, count and plan_digest are appended to it as well.
    """
    from matrixgen import matrix
    from matrixgen.cli.context import may_save
    from matrixgen.jobs import jobs_of

    pack, chunked, chunk, receipts, verdict, days = (
        options.pop(name) for name in ("pack", "chunked", "chunk", "only_missing", "check_freshness", "max_age_days")
    )
    if chunked and chunk:
        raise click.UsageError("--chunked prints all chunks and --chunk one of them: choose")
    if verdict is not None:
        from matrixgen.cli.freshness import require_fresh

        require_fresh(verdict, days)
    plan = plan_of(load(root), options)
    jobs = jobs_of(plan.legs, pack_minutes=pack, kept=None if receipts is None else _missing(plan, receipts))
    if chunk:
        jobs = list(matrix.one_chunk(jobs, chunk))
    values = matrix.github_outputs(plan, jobs, save_caches=may_save(os.environ), chunked=chunked)
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
            click.echo("".join(f"{leg.id}\n" for job in jobs for leg in job.legs), nl=False)
        case _:
            click.echo(values["chunks" if chunked else "matrix"])
    if output_format != "table":
        tell_skipped(plan)


def _missing(plan: Plan, folder: Path) -> set[str]:
    from matrixgen.receipts import passed_legs, read_receipts

    receipts, wrong = read_receipts(folder)
    tell_left_out(wrong)
    passed = passed_legs(receipts, plan.digest)
    missing = {leg.id for leg in plan.legs} - passed
    click.echo(f"{len(plan.legs) - len(missing)} of {len(plan.legs)} legs have passed in this plan already", err=True)
    return missing


@click.command()
@selection_options
@click.option("-o", "--output", metavar="FILE", type=PATH, help="Write here. [default: print]")
def plan(root: Path | None, output: Path | None, **selection: Any) -> None:
    """Print or write the whole plan.

    It holds every leg that must report, with all digests.
    """
    from matrixgen import report
    from matrixgen.planfile import plan_text, write_plan

    made = plan_of(load(root), selection)
    if output is None:
        click.echo(plan_text(made), nl=False)
        return
    write_plan(made, output)
    click.echo(f"{report.count(len(made.legs), 'leg')} in {output}, {made.digest}")
    tell_skipped(made)


@click.command()
@selection_options
@click.option("--why", is_flag=True, help="Also print the parts that each key is made of.")
@click.option("--corpus", metavar="FILE", type=PATH, multiple=True, help="Print the key of these files. Repeatable.")
@click.option("--name", metavar="NAME", default="corpus", show_default=True, help="Name of the set, for --corpus.")
@click.option("--os", "system", metavar="OS", default="linux", show_default=True, help="System, for --corpus.")
def keys(root: Path | None, why: bool, corpus: tuple[Path, ...], name: str, system: str, **selection: Any) -> None:
    """Print the build keys and model-cache keys of an event.

    With --corpus, the key of text files instead.
    """
    from matrixgen import report
    from matrixgen.keys import corpus_key, plan_keys

    manifest = load(root)
    if corpus:
        from matrixgen.files import sha256_of

        files = {path.as_posix(): sha256_of(path) for path in corpus}
        version, prefix = manifest.pin.cache_version, manifest.caches.prefix
        found = [(f"corpus {name}", corpus_key(name, files, os=system, cache_version=version, prefix=prefix))]
    else:
        found = plan_keys(manifest, plan_of(manifest, selection))
    click.echo(report.keys_text(found, why=why))


@click.command()
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="[AFTER]", required=False)
@click.option("--event", metavar="NAME", default="llama-bump", show_default=True, help="What to plan from manifests.")
@click.option("--check", is_flag=True, help="Exit 1 when something differs.")
@manifests_option
def diff(root: Path | None, before: str, after: str | None, event: str, check: bool) -> None:
    """Say in Markdown what two plans differ in.

    BEFORE and AFTER are each a plan file, a manifest folder, or a git revision; AFTER is the manifest as it is now if left out.
    """
    from matrixgen.diff import diff_plans
    from matrixgen.report_diff import diff_markdown

    plans = [_plan_from(word, root, event) for word in (before, after)]
    found = diff_plans(*plans)
    name = plans[1].event if plans[0].event == plans[1].event else f"{plans[0].event}` against `{plans[1].event}"
    click.echo(diff_markdown(found, event=name), nl=False)
    if check and not found.same:
        raise SystemExit(1)


def _plan_from(word: str | None, root: Path | None, event: str) -> Plan:
    from matrixgen.plan import build_plan, read_plan

    if word is None:
        return build_plan(load(root), event=event, allow_empty=True)
    path = Path(word)
    if "\0" not in word and path.is_file():
        return read_plan(path)
    if "\0" not in word and path.is_dir():
        return build_plan(load(path), event=event, allow_empty=True)
    from matrixgen.cli.revision import manifest_at, resolve
    from matrixgen.manifest import default_root

    where = default_root() if root is None else root
    return build_plan(manifest_at(where, resolve(where, word)), event=event, allow_empty=True)
