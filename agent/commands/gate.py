"""`skippy-agent gate`."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from agent.errors import UsageError
from agent.gate.builds import read_builds
from agent.gate.collect import collect
from agent.gate.evidence import RunContext
from agent.gate.needs import parse_needs
from agent.gate.reason import State
from agent.gate.verdict import Verdict, judge
from agent.gate.verdict_file import verdict_to_json, write_verdict
from agent.reporters.gate import verdict_lines
from agent.reporters.junit import render_junit
from agent.reporters.markdown import render_markdown
from matrixgen.files import write_atomically
from matrixgen.limits import MAX_SUMMARY_BYTES
from matrixgen.plan import read_plan

EXIT_CODES = {State.GREEN: 0, State.RED: 1, State.INFRA: 4}


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What the user asked for; see `skippy-agent gate --help`."""

    plan: Path
    receipts: Path
    builds: Path | None
    repository: str | None
    run_id: str | None
    attempt: int | None
    base_commit: str | None
    base_tree: str | None
    needs: str | None
    require_signature: bool
    output: Path | None
    summary: Path | None
    junit: Path | None
    as_json: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From the options of the command line."""
        return cls(**options)


def run(request: GateRequest) -> int:
    """Judge, report and write; returns the exit code."""
    plan = read_plan(request.plan)
    context = RunContext(
        repository=request.repository,
        run_id=request.run_id,
        attempt=request.attempt,
        base_commit=_commit(request.base_commit, "--base-commit"),
        base_tree=_commit(request.base_tree, "--base-tree"),
        jobs=None if request.needs is None else parse_needs(request.needs),
        signatures_required=request.require_signature,
        builds_checked=request.builds is not None,
        certified_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    evidence = collect(request.receipts)
    if request.builds:
        evidence = replace(evidence, builds=read_builds(request.builds))
    verdict = judge(plan, evidence, context)
    if request.output:
        write_verdict(verdict, request.output)
    if request.junit:
        write_atomically(request.junit, render_junit(verdict))
    if request.as_json:
        sys.stdout.write(json.dumps(verdict_to_json(verdict)) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in verdict_lines(verdict)))
    if request.summary:
        append_summary(verdict, request.summary)
    return EXIT_CODES[verdict.state]


def append_summary(verdict: Verdict, path: Path) -> None:
    """Append Markdown to a step summary, within what the other steps left of its 1 MiB."""
    try:
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(render_markdown(verdict, MAX_SUMMARY_BYTES - used))
    except OSError as error:
        # the verdict stands without its summary; it must not turn red, nor go unsaid
        sys.stderr.write(f"note: the summary could not be written to {path}: {error.strerror}\n")


def _commit(text: str | None, option: str) -> str | None:
    if text is None or (len(text) == 40 and all(character in "0123456789abcdef" for character in text)):
        return text
    raise UsageError(f"{option} takes a full commit id of 40 hex digits, not {text[:80]!r}")
