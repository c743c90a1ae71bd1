"""`skippy-agent refuse`: the tombstones of the manifest, and whether the build refuses each of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.errors import InfraError, UsageError
from agent.lanes.result import LaneResult, Status
from agent.runner.refuse import LANE, check_refusal
from matrixgen.errors import NothingSelected
from matrixgen.family import Family
from matrixgen.manifest import load_manifest

_DROPPED = 3  # tier
_EXIT_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.INFRA: 4}


def run(families: Sequence[str], *, manifests: Path | None, as_json: bool) -> int:
    """Ask for each tombstone; returns the exit code."""
    results = {row: _ask(row) for row in _choose(families, manifests)}
    if as_json:
        rows = [{"family": row.family, "architecture": row.arch, **found.to_json()} for row, found in results.items()]
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        for row, found in results.items():
            sys.stdout.write(
                f"{found.status:<6} {row.family}: {found.problems[0] if found.problems else found.summary}\n"
            )
        refused = sum(found.status is Status.PASS for found in results.values())
        sys.stdout.write(f"{refused} of {len(results)} dropped families are refused\n")
    return max((_EXIT_CODES[found.status] for found in results.values()), key=(0, 4, 1).index)


def _choose(families: Sequence[str], manifests: Path | None) -> list[Family]:
    manifest = load_manifest(manifests)
    rows = [manifest.family(name) for name in dict.fromkeys(families)] or list(manifest.families)
    if families and (kept := [row.family for row in rows if row.tier != _DROPPED]):
        raise UsageError(f"{', '.join(kept)}: not dropped; only families of tier 3 must be refused")
    dropped = [row for row in rows if row.tier == _DROPPED and row.arch]
    if not dropped:
        raise NothingSelected("the manifest has no dropped family, so there is nothing to refuse")
    return dropped


def _ask(row: Family) -> LaneResult:
    try:
        return check_refusal(row.arch or "").result
    except InfraError as error:
        return LaneResult(lane=LANE, status=Status.INFRA, comparisons=0, summary=str(error), problems=(str(error),))
