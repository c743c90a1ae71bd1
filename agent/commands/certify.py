"""`skippy-agent certify`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agent.certify import Options, certify
from agent.commands.folders import twin_folder
from agent.commands.open_store import StoreRequest, open_store
from agent.commands.select import plan_here
from agent.contracts import load_contracts
from agent.errors import UsageError
from agent.header.reader import Header, read_model_header, read_remote_header
from agent.header.role import require_causal
from agent.lanes.result import Status
from agent.receipt.receipt import Receipt
from matrixgen.leg import Leg, Plan
from matrixgen.manifest import load_manifest
from matrixgen.plan import read_plan

if TYPE_CHECKING:
    from agent.store.store import Store

_EXIT_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.INFRA: 4}


@dataclass(frozen=True, kw_only=True)
class CertifyRequest:
    """What the user asked for; see `skippy-agent certify --help`."""

    families: tuple[str, ...]
    tiers: tuple[int, ...]
    plan_file: Path | None
    leg_ids: tuple[str, ...]
    event: str
    model: Path | None
    projector: Path | None
    twin: bool
    twin_of: str | None
    device: str | None
    threads: int | None
    jobs: int | None
    receipts: Path
    resume: bool
    store: Path | None
    sources: tuple[str, ...]
    offline: bool
    manifests: Path | None
    as_json: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From the options of the command line.

        Raises:
            UsageError: they do not go together.
        """
        request = cls(**options)
        if request.plan_file and (request.families or request.tiers):
            raise UsageError(
                "--plan already says which families run: leave out FAMILY and --tier, and choose legs with --leg"
            )
        if request.twin_of and (request.model or request.twin or request.plan_file):
            raise UsageError("--twin-of makes the model that is tested: leave out --model, --twin and --plan")
        if not (request.plan_file or request.families or request.tiers or request.twin_of):
            raise UsageError("nothing to certify: name a family, a --tier or a --plan")
        if request.leg_ids and not request.plan_file:
            raise UsageError("--leg names a leg of a plan: give the plan with --plan")
        if request.projector and not request.model:
            raise UsageError("--projector belongs to the model that is given with --model: give that, too")
        if request.model and request.twin:
            raise UsageError("--model is a real file and --twin a random one: choose one of them")
        return request


def run(request: CertifyRequest) -> int:
    """Certify; returns the exit code."""
    header = _read_twin_of(request.twin_of) if request.twin_of else None
    plan, legs, manifests = _choose(request, header)
    if request.model and len(legs) != 1:
        raise UsageError(f"--model is one file, and {len(legs)} legs were selected: name one family")
    if header and len(legs) != 1:
        raise UsageError(f"--twin-of is one model, and {len(legs)} legs were selected: name one family")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    twins_only = all(leg.subject == "twin" for leg in legs)
    options = Options(
        receipts=request.receipts,
        twins=twin_folder(),
        contracts=load_contracts(manifests),
        model=request.model,
        projector=request.projector,
        twin_of=header,
        store=_store(request, legs),
        device=request.device,
        threads=request.threads or (1 if twins_only else cores),
        jobs=request.jobs or (cores if twins_only else 1),
        resume=request.resume,
    )
    receipts = _run_and_report(request, plan, legs, options)
    statuses = {receipt.status for receipt in receipts}
    worst = Status.FAIL if Status.FAIL in statuses else Status.INFRA if Status.INFRA in statuses else Status.PASS
    return _EXIT_CODES[worst]


def _store(request: CertifyRequest, legs: tuple[Leg, ...]) -> Store | None:
    """The store, where a leg needs files that were not given; it tells what it does on standard error."""
    if request.model or all(leg.subject == "twin" for leg in legs):
        return None
    from agent.reporters.transfers import PlainTransfers

    chosen = StoreRequest(folder=request.store, sources=request.sources, offline=request.offline)
    return open_store(chosen, PlainTransfers(sys.stderr))


def _read_twin_of(reference: str) -> Header:
    header = read_remote_header(reference) if reference.startswith("hf://") else read_model_header(Path(reference))
    require_causal(header)
    return header


def _family_of(architecture: str, manifests: Path | None) -> str:
    """The row whose architecture this is; of several, one in the lowest tier."""
    rows = [row for row in load_manifest(manifests).families if row.arch == architecture and row.tier in (None, 1, 2)]
    if not rows:
        raise UsageError(f"no family of the manifest has the architecture {architecture!r}: name one, or add a row")
    return min(rows, key=lambda row: (row.tier or 9, row.family)).family


def _choose(request: CertifyRequest, header: Header | None) -> tuple[Plan, tuple[Leg, ...], Path]:
    if request.plan_file:
        plan = read_plan(request.plan_file)
        legs = tuple(plan.leg(leg_id) for leg_id in request.leg_ids) or plan.legs
        return plan, legs, load_manifest(request.manifests).root
    families = request.families
    if header and not (families or request.tiers):
        families = (_family_of(header.architecture, request.manifests),)
    if request.model:
        require_causal(read_model_header(request.model))
    subject = "twin" if request.twin or header else "weights" if request.model else None
    manifest, plan = plan_here(
        request.manifests,
        families=families,
        tiers=request.tiers,
        event=request.event,
        subject=subject,
        device=request.device,
    )
    if request.model:
        # the row may have no pinned weights; the file that was given is tested all the same, never a twin in its place
        legs = tuple(replace(leg, subject="weights") for leg in plan.legs)
        plan = replace(plan, legs=legs, skipped=())
    return plan, plan.legs, manifest.root


def _run_and_report(
    request: CertifyRequest, plan: Plan, legs: tuple[Leg, ...], options: Options
) -> tuple[Receipt, ...]:
    from agent.reporters.plain import PlainReporter, SilentReporter

    started = time.perf_counter()
    if request.as_json:
        receipts = certify(plan, legs, options, SilentReporter())
        sys.stdout.write(json.dumps([receipt.to_json() for receipt in receipts]) + "\n")
        return receipts

    from rich.text import Text

    from agent.reporters.console import make_console
    from agent.reporters.live import LiveReporter
    from agent.reporters.page import PAGE_NAME, write_page
    from agent.reporters.summary import print_summary

    console = make_console()
    for entry in plan.skipped:
        console.print(Text.assemble(("note", "yellow"), f" {entry.family}: {entry.reason}"))
    if console.is_terminal:
        with LiveReporter(console, legs) as reporter:
            receipts = certify(plan, legs, options, reporter)
    else:
        receipts = certify(plan, legs, options, PlainReporter(sys.stderr))
    page = options.receipts / PAGE_NAME
    write_page(receipts, page)
    print_summary(console, receipts, options.receipts, time.perf_counter() - started)
    console.print(f"page to open: {page}")
    return receipts
