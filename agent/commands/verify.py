"""`skippy-agent verify` and `skippy-agent statement`."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.errors import UsageError
from agent.gate.statements import write_statement
from agent.gate.text import plain
from agent.gate.verify import NOT_CHECKED, verify
from matrixgen.plan import read_plan


def run(
    plan_file: Path,
    receipts: Path | None,
    verdict: Path | None,
    *,
    require_signature: bool,
    max_age_hours: float | None,
    as_json: bool,
) -> int:
    """Check; returns 0 if everything holds, else 1."""
    if receipts is None and verdict is None:
        raise UsageError("nothing to verify: give --receipts, --verdict or both")
    if require_signature and receipts is None:
        raise UsageError("--require-signature is about receipts: give --receipts")
    checks = verify(
        read_plan(plan_file),
        receipts,
        verdict,
        signatures_required=require_signature,
        max_age_hours=max_age_hours,
        now=dt.datetime.now(dt.UTC),
    )
    wrong = [check for check in checks if check.problem]
    if as_json:
        rows = [{"name": check.name, "problem": check.problem} for check in checks]
        answer = {"holds": not wrong, "checks": rows, "not_checked": list(NOT_CHECKED)}
        sys.stdout.write(json.dumps(answer) + "\n")
    else:
        for check in sorted(checks, key=lambda check: check.problem is None):
            words = "holds" if check.problem is None else f"WRONG: {plain(check.problem, 600)}"
            sys.stdout.write(f"{plain(check.name)}: {words}\n")
        for line in NOT_CHECKED:
            sys.stdout.write(f"not checked: {line}\n")
    return 1 if wrong or not checks else 0


def run_statement(files: Sequence[Path]) -> int:
    """Write the statement and the predicate of each file; returns 0."""
    for file in files:
        for made in write_statement(file):
            sys.stdout.write(f"{made}\n")
    return 0
