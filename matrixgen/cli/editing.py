"""`move`, `add`, `fmt`, `pin`: change a manifest file, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from matrixgen.cli.options import PATH, manifests_option

TIERS = click.Choice(["1", "2", "3", "null"])


@click.command()
@click.argument("family")
@click.option("--tier", required=True, type=TIERS, help="The new tier; null is in no tier.")
@manifests_option
def move(family: str, tier: str, root: Path | None) -> None:
    """Move FAMILY to another tier: one line changes."""
    from matrixgen import edit

    where = _root(root)
    target = None if tier == "null" else int(tier)
    old, line = edit.move(where, family, target)
    if old == target:
        click.echo(f"{family} is already in tier {tier}; nothing changed")
        return
    click.echo(f"{family}: tier {'null' if old is None else old} -> {tier} in {where / 'families.json'}")
    click.echo(_short(line))


@click.command()
@click.argument("family")
@click.option("--arch", required=True, help="general.architecture of the file.")
@click.option("--shape", required=True, help="dense, looped, recurrent, hybrid, multimodal, package or encoder.")
@click.option("--tier", type=TIERS, default="null", show_default=True, help="null is in no tier.")
@click.option("--priority", default="p2", show_default=True, help="p0, p1 or p2.")
@click.option("--status", default="candidate", show_default=True, help="Certification level.")
@click.option("--repo", help="OWNER/NAME of the model file.")
@click.option("--revision", help="Full commit id, 40 hex digits.")
@click.option("--selector", default="", help="Quantisation, such as Q4_K_M.")
@click.option("--file", "files", metavar="PATH[:SIZE:SHA256]", multiple=True, help="A file of it. Repeatable.")
@click.option("--cache", help="Cache policy. [default: what the shape implies]")
@click.option("--llama-model", "models", multiple=True, help="Stem of src/models/*.cpp. Repeatable. [default: FAMILY]")
@click.option("--reason", default="in no tier yet", show_default=True, help="Why this tier.")
@click.option("--notes", default="", help="What else a maintainer should know.")
@manifests_option
def add(root: Path | None, family: str, **given: Any) -> None:
    """Add a row for FAMILY: one line is new, in its place."""
    from matrixgen import edit
    from matrixgen.rows import new_row

    where = _root(root)
    line = edit.add(where, new_row(family, **given))
    click.echo(f"{family} is new in {where / 'families.json'}")
    click.echo(_short(line))


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit 1 when something would change.")
@manifests_option
def fmt(check: bool, root: Path | None) -> None:
    """Write families.json in canonical form.

    One family a line, fixed key order, sorted by name.
    """
    from matrixgen import edit
    from matrixgen.files import write_atomically

    where = _root(root)
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


@click.command()
@click.argument("commit", required=False)
@click.option("--version", help="Label beside the commit: bNNNNN or vX.Y.Z.")
@click.option("--patches", metavar="DIR", type=PATH, help="Folder of the patch queue.")
@click.option("--upstream", metavar="DIR", type=PATH, help="The product's folder: upstream.txt and patches/.")
@click.option("--cache-version", metavar="FILE", type=PATH, help="Take the cache version from this file.")
@click.option("--toolchain-epoch", metavar="WORD", help="Another epoch: every build is made anew.")
@click.option("--check", is_flag=True, help="With --upstream: change nothing, exit 1 when the pin differs.")
@manifests_option
def pin(root: Path | None, commit: str | None, upstream: Path | None, check: bool, **given: Any) -> None:
    """Print the pin, or set it: COMMIT, patches, versions."""
    from matrixgen import pinning

    where = _root(root)
    patches = None if given["patches"] is None else pinning.read_patches(given["patches"])
    if upstream is not None:
        if commit or patches is not None:
            raise click.UsageError("--upstream gives commit and patches: leave out COMMIT and --patches")
        commit, patches = pinning.read_upstream(upstream)
    if check:
        _check(where, commit, patches)
        return
    version_file = given["cache_version"]
    before, after = pinning.set_pin(
        where,
        commit=commit,
        version=given["version"],
        patches=patches,
        cache_version=None if version_file is None else pinning.read_cache_version(version_file),
        toolchain_epoch=given["toolchain_epoch"],
    )
    for name in ("commit", "version", "toolchain_epoch", "cache_version"):
        old, new = getattr(before, name), getattr(after, name)
        click.echo(f"{name.ljust(16)}{new or 'none'}" + ("" if old == new else f"  (was {old or 'none'})"))
    changed = "" if before.patches == after.patches else f"  (was {len(before.patches)})"
    click.echo(f"{'patches'.ljust(16)}{len(after.patches)}{changed}")


def _check(where: Path, commit: str | None, patches: Any) -> None:
    from matrixgen.manifest import load_manifest
    from matrixgen.pinning import differences

    if commit is None or patches is None:
        raise click.UsageError("--check compares with --upstream DIR")
    found = differences(load_manifest(where), commit, patches)
    click.echo("\n".join(found) or "pin.json and the product agree")
    if found:
        raise SystemExit(1)


def _root(root: Path | None) -> Path:
    from matrixgen.manifest import default_root

    return default_root() if root is None else root


def _short(line: str) -> str:
    return line if len(line) <= 120 else f"{line[:117]}..."
