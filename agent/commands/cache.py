"""`skippy-agent cache`: what is in the store, whether it is whole, and making room."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.commands.open_store import floor_bytes, store_folder
from agent.errors import UsageError
from agent.store.root import existing_root
from agent.store.space import parse_size, shown_size

if TYPE_CHECKING:
    from agent.store.root import Root
    from agent.store.tidy import Cleaning, Entry

_PATIENCE = 300.0


def run_ls(folder: Path | None, *, as_json: bool) -> int:
    """List the blobs, the one that was not used for longest first; returns the exit code."""
    from agent.store.tidy import entries

    root = existing_root(store_folder(folder))
    found = entries(root)
    if as_json:
        _print_json({"store": str(root.path), "blobs": [_to_json(entry) for entry in found]})
        return 0
    _show(root, found)
    return 0


def run_verify(folder: Path | None, *, as_json: bool) -> int:
    """Hash every blob anew; returns 0 where all are good, else 4."""
    from agent.reporters.transfers import show_transfers
    from agent.store.stamps import Stamps
    from agent.store.tidy import verify

    root = existing_root(store_folder(folder))
    with show_transfers(sys.stderr) as progress:
        results = verify(root, Stamps(root.stamps if root.writable else None), progress, patience=_PATIENCE)
    bad = [entry for entry, good in results if not good]
    if as_json:
        rows = [_to_json(entry) | {"good": good} for entry, good in results]
        _print_json({"store": str(root.path), "blobs": rows})
    else:
        for entry in bad:
            where = (
                f"moved to {root.quarantined(entry.sha256)}"
                if root.writable
                else "left where it is: the store is read-only"
            )
            sys.stdout.write(f"wrong_bytes: {entry.sha256} {' '.join(entry.names)}: {where}\n")
        sys.stdout.write(f"{len(results)} blobs, {len(bad)} of them wrong, in {root.path}\n")
    return 4 if bad else 0


def run_gc(
    folder: Path | None, *, free: str | None, unpinned: bool, manifests: Path | None, dry_run: bool, as_json: bool
) -> int:
    """Make room; returns 0 where as much is free as was asked for, else 4."""
    from agent.store.tidy import clean

    root = existing_root(store_folder(folder))
    try:
        target = parse_size(free) if free else floor_bytes()
    except ValueError:
        raise UsageError(f"--free is {free!r}: give a size such as 200GiB") from None
    done = clean(root, free=target, pinned=_pinned(root, manifests) if unpinned else None, dry_run=dry_run)
    if as_json:
        row = {key: value for key, value in asdict(done).items() if key not in ("removed", "spared")}
        lists = {"removed": [*map(_to_json, done.removed)], "spared": [*map(_to_json, done.spared)]}
        _print_json({"store": str(root.path), "dry_run": dry_run} | row | lists)
    else:
        _show_cleaning(done, target, dry_run=dry_run)
    return 0 if done.enough else 4


def _pinned(root: Root, manifests: Path | None) -> frozenset[str]:
    """Digests of all files that a row pins, dropped families too, and of the parts that a pinned package is made of."""
    from agent.package.fetch import pinned_parts
    from matrixgen.manifest import load_manifest

    families = load_manifest(manifests).families
    files = (
        file.sha256
        for family in families
        for artifact in (family.artifact, family.projector, family.package)
        if artifact is not None
        for file in artifact.files
        if file.sha256
    )
    return frozenset(files).union(*(pinned_parts(family, root.blob) for family in families))


def _to_json(entry: Entry) -> dict[str, Any]:
    return asdict(entry) | {
        "names": list(entry.names),
        "used": dt.datetime.fromtimestamp(entry.used, dt.UTC).isoformat(),
    }


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def _show(root: Root, found: tuple[Entry, ...]) -> None:
    from rich.table import Table

    from agent.reporters.console import make_console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("sha256", "size", "last use", "in use", "names"):
        table.add_column(column)
    for entry in found:
        days = (time.time() - entry.used) / 86400
        table.add_row(
            entry.sha256[:16],
            shown_size(entry.size),
            f"{days:.1f} days ago",
            "yes" if entry.leased else "",
            ", ".join(entry.names),
        )
    console = make_console()
    with contextlib.suppress(BrokenPipeError):
        if found:
            console.print(table)
        console.print(
            f"{len(found)} blobs, {shown_size(sum(entry.size for entry in found))}, in {root.path}", soft_wrap=True
        )


def _show_cleaning(done: Cleaning, target: int, *, dry_run: bool) -> None:
    verb = "would remove" if dry_run else "removed"
    for entry in done.removed:
        sys.stdout.write(f"{verb} {entry.sha256[:16]} {shown_size(entry.size)} {' '.join(entry.names)}\n")
    for entry in done.spared:
        sys.stdout.write(f"in use {entry.sha256[:16]} {shown_size(entry.size)} {' '.join(entry.names)}\n")
    sys.stdout.write(f"{verb} {shown_size(done.freed)}; free: {shown_size(done.free)}\n")
    if not done.enough:
        sys.stderr.write(f"no_space: {shown_size(target)} were to be free: what is left is in use, or not ours\n")
