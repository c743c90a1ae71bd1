"""A git revision: its manifest, and what changed since. The only place that runs git."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import click

from matrixgen.errors import InvalidValue, MatrixgenError, NothingSelected

if TYPE_CHECKING:
    from pathlib import Path

    from matrixgen.leg import Plan
    from matrixgen.manifest import Manifest

SECONDS = 60


def changed_plan(manifest: Manifest, revision: str, selection: dict[str, Any]) -> Plan:
    """The plan of `selection`, with only the legs that the changes since `revision` affect; why is told on standard error."""
    from matrixgen.changed import affected
    from matrixgen.plan import build_plan, restrict

    commit = resolve(manifest.root, revision)
    after = build_plan(manifest, **selection)
    reasons = affected(_plan_at(manifest, commit, selection), after, changed_paths(manifest.root, commit))
    for leg_id, why in reasons.items():
        click.echo(f"{leg_id}: {'; '.join(why)}", err=True)
    plan = restrict(after, reasons, f"not affected by the changes since {commit[:12]}")
    if not plan.legs and not selection.get("allow_empty"):
        raise NothingSelected(
            f"the changes since {commit[:12]} affect none of {len(after.legs)} legs. Give --allow-empty if that may be"
        )
    return plan


def manifest_at(root: Path, commit: str) -> Manifest:
    """The manifest of `commit`, from the same folder. Raises InvalidValue when it has none that can be used."""
    from matrixgen.manifest import FILES, check_manifest

    top = _git(root, "rev-parse", "--show-prefix").strip()
    texts = {}
    for name in FILES:
        done = _run(root, "show", f"{commit}:{top}{name}.json")
        if done.returncode == 0:
            texts[name] = done.stdout.decode("utf-8", errors="replace")
    if "families" not in texts:
        raise InvalidValue(f"{commit[:12]} has no families.json in this folder; give a revision that has one")
    findings, manifest = check_manifest(root, replaced=texts, warnings=False)
    if manifest is None:
        raise InvalidValue(f"the manifest of {commit[:12]} cannot be used: {findings[0].id} {findings[0].message}")
    return manifest


def resolve(root: Path, revision: str) -> str:
    """The full commit id. Raises InvalidValue, which tells how to fetch what a shallow clone lacks."""
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise InvalidValue(f"{ascii(revision)[:60]} is not a git revision")
    done = _run(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if done.returncode:
        raise InvalidValue(
            f"git does not know revision {revision[:60]!r} in {root}; in a workflow, check out with fetch-depth: 0"
        )
    return done.stdout.decode().strip()


def changed_paths(root: Path, commit: str) -> list[str]:
    """Paths, relative to the top of the repository, that differ between `commit` and the working tree, new files too."""
    changed = _git(root, "diff", "--name-only", "--no-renames", "-z", commit, "--", ":/")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", ":/")
    return sorted({path for path in (changed + new).split("\0") if path})


def _plan_at(manifest: Manifest, commit: str, selection: dict[str, Any]) -> Plan | None:
    from matrixgen.plan import build_plan

    try:
        old = manifest_at(manifest.root, commit)
        return build_plan(old._replace(root=manifest.root), **{**selection, "families": (), "allow_empty": True})
    except MatrixgenError as error:
        click.echo(f"every leg counts as affected: {error}", err=True)
        return None


def _git(root: Path, *arguments: str) -> str:
    done = _run(root, *arguments)
    if done.returncode:
        raise InvalidValue(f"git {arguments[0]} failed in {root}: {ascii(done.stderr.decode(errors='replace'))[1:200]}")
    return done.stdout.decode("utf-8", errors="surrogateescape")


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", *arguments],  # noqa: S607 - whichever git the user has
            cwd=root,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise InvalidValue("git, or the folder of the manifest, is not there; --changed-from needs both") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidValue(f"git {arguments[0]} in {root} did not end: {error}") from None
