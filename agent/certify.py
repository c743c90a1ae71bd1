"""From a plan to receipts: each leg's model is found and looked at, its battery runs in a child, and its receipt is written."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from agent import __version__
from agent.contracts import RecordedContract
from agent.digests import sha256_of_file
from agent.draft import Draft, ended_lanes, kept, read_earlier, same_engine
from agent.errors import AgentError, ArchitectureMismatch, InfraError, ModelMissing
from agent.header.reader import Header, read_model_header
from agent.header.role import require_causal
from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import Receipt, TestedFile, TestedSubject, write_receipt
from agent.receipt.surroundings import describe_run, describe_runner
from agent.runner import refuse
from agent.runner.job import Job
from agent.runner.supervise import NOTHING_LOADED, Loaded, Outcome, supervise
from agent.store.store import Store
from agent.store.wanted import first_shard, wanted_of
from agent.twin.build import build_twin
from agent.twin.catalog import RECIPES, recipe_for
from agent.twin.from_header import recipe_of_header
from agent.twin.recipe import Recipe
from matrixgen.leg import Leg, Plan

_NEEDS_PROJECTOR = "media-prefill"  # the lane that reads the second set of a family's files

_TWIN_PROVES = "the graph, the contract of every cut and the layout of state, on this build, for this layer pattern"
_TWIN_DOES_NOT = "anything about the real weights, their quantisation or the range of their activations"
_WEIGHTS_PROVE = (
    "that these files, on this build and device, give the same bits split as whole, for the workloads of the lanes"
)
_OTHER_FILES = "anything about the files that the manifest pins: these are others"
_WEIGHTS_DO_NOT = "other quantisations, other devices, or longer contexts than the lanes use"


class Reporter(Protocol):
    """Who is told how a certification gets on. Calls may come from several threads."""

    def leg_started(self, leg: Leg) -> None:
        """A leg begins."""

    def lane_started(self, leg: Leg, lane: str) -> None:
        """A lane of it begins."""

    def lane_finished(self, leg: Leg, result: LaneResult) -> None:
        """A lane of it ended."""

    def leg_finished(self, leg: Leg, receipt: Receipt) -> None:
        """A leg ended and its receipt is written."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run a plan here.

    Attributes:
        receipts: folder of the receipts.
        twins: folder in which twins are kept.
        contracts: recorded contracts by architecture.
        model: the GGUF to test for a leg on weights; None to take the files that the plan names from the store.
        projector: the projector to test with `model`.
        store: where the files of weights come from; None where no leg needs any.
        twin_of: the header whose layers a leg's twin gets; None for the twin of the catalogue.
        device: device to use instead of the one that a leg's backend names.
        threads: of the CPU backend, in one leg.
        jobs: legs at once.
        resume: go on where an interrupted run of the same plan left its receipts.
    """

    receipts: Path
    twins: Path
    contracts: Mapping[str, RecordedContract]
    model: Path | None = None
    projector: Path | None = None
    store: Store | None = None
    twin_of: Header | None = None
    device: str | None = None
    threads: int = 1
    jobs: int = 1
    resume: bool = False


def certify(plan: Plan, legs: tuple[Leg, ...], options: Options, reporter: Reporter) -> tuple[Receipt, ...]:
    """Run `legs` of `plan` and return their receipts in the same order."""
    pool = ThreadPoolExecutor(max_workers=options.jobs)
    try:
        # the longest first, so that no long one is left alone at the end
        order = sorted(legs, key=_length, reverse=True)
        running = {leg.id: pool.submit(_certify_leg, plan, leg, options, reporter) for leg in order}
        return tuple(running[leg.id].result() for leg in legs)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # at an interrupt nobody waits for legs that may take hours


def _length(leg: Leg) -> int:
    """What the time of a leg grows with: bytes of weights, layers of a twin."""
    recipe = RECIPES.get(leg.family.arch or "")
    return sum(file.size or 0 for file in leg.files) or (recipe.n_layer if recipe else 0)


def _certify_leg(plan: Plan, leg: Leg, options: Options, reporter: Reporter) -> Receipt:
    """Run one leg. An unfinished receipt is on the disk before anything else happens, so that a lost leg is not silent."""
    reporter.leg_started(leg)
    started = _now()
    earlier = read_earlier(options.receipts, leg.id) if options.resume else None
    unfinished = Outcome(results=_all_lanes(leg, Status.INFRA, "the leg did not run to its end"))
    draft = Draft(_receipt(plan, leg, started, _untested(leg), unfinished), options.receipts)

    with contextlib.ExitStack() as leases:
        subject, outcome = _test(leg, options, _LegObserver(leg, reporter, draft), leases, earlier)
    receipt = _receipt(plan, leg, started, subject, outcome)
    write_receipt(receipt, options.receipts)
    reporter.leg_finished(leg, receipt)
    return receipt


def _test(
    leg: Leg,
    options: Options,
    observer: _LegObserver,
    leases: contextlib.ExitStack,
    earlier: Receipt | None,
) -> tuple[TestedSubject, Outcome]:
    subject = _untested(leg)
    try:
        if [lane.name for lane in leg.lanes] == [refuse.LANE]:
            return _test_refusal(leg, observer)
        path, projector = _find_files(leg, options, leases)
        header = read_model_header(path)
        subject = _describe_subject(leg, header, projector, options)
        require_causal(header)
        if header.architecture != leg.family.arch:
            raise ArchitectureMismatch(
                f"{path.name} is of architecture {header.architecture!r}; the row {leg.family.family} says {leg.family.arch!r}. "
                "Correct the row, or test the file under the family that it belongs to."
            )
    except AgentError as error:
        status = Status.INFRA if isinstance(error, InfraError) else Status.FAIL
        results = _all_lanes(leg, status, str(error))
        for result in results:
            observer.lane_finished(result)
        return subject, Outcome(results=results)
    job = Job(
        model=path,
        device=options.device or leg.backend,
        threads=options.threads,
        family=leg.family,
        random_weights=leg.subject == "twin",
        recorded=options.contracts.get(header.architecture),
        twin=_recipe(leg, options).name if leg.subject == "twin" and options.twin_of is None else "",
        lanes=tuple((lane.name, lane.params) for lane in leg.lanes),
        projector=projector,
    )
    observer.draft.describe(subject)
    return subject, _require_evidence(leg, _run(job, leg, observer, earlier))


def _run(job: Job, leg: Leg, observer: _LegObserver, earlier: Receipt | None) -> Outcome:
    """Run the battery, or what `earlier` left of it if that was on the same libraries and device."""
    seconds = leg.timeout_minutes * 60
    ended = ended_lanes(earlier, observer.draft.receipt) if earlier else {}
    if not (earlier and ended):
        return supervise(job, observer, seconds)
    observer.keep(earlier, tuple(ended.values()))
    rest = tuple(lane for lane in job.lanes if lane[0] not in ended)
    outcome = supervise(replace(job, lanes=rest), observer, seconds)
    if not same_engine(earlier, observer.draft.receipt):
        return supervise(job, observer, seconds)
    return replace(outcome, results=observer.draft.receipt.lanes)


def _test_refusal(leg: Leg, observer: _LegObserver) -> tuple[TestedSubject, Outcome]:
    """A dropped family has no model to test: that nothing is loaded is the test."""
    refusal = refuse.check_refusal(leg.family.arch or leg.family.family)
    observer.lane_finished(refusal.result)
    subject = replace(
        _untested(leg), proves="how the build answers a file of this architecture", does_not_prove="anything else"
    )
    return subject, Outcome(results=(refusal.result,), loaded=replace(NOTHING_LOADED, engine=refusal.engine))


def _require_evidence(leg: Leg, outcome: Outcome) -> Outcome:
    """A leg counts only on a device of its own backend, and only if most nodes of the graph ran there."""
    device, nodes_by_device = outcome.loaded.device, outcome.loaded.nodes_by_device
    if not device:
        return outcome
    name, nodes = str(device["name"]), sum(nodes_by_device.values())
    here = nodes_by_device.get(name, 0)
    if device["backend"] != leg.backend:
        message = f"the leg is for {leg.backend} and was run on {name}: nothing is known about {leg.backend}"
    elif 2 * here <= nodes:
        where = ", ".join(f"{count} on {device}" for device, count in nodes_by_device.items())
        message = f"most nodes of the graph did not run on {name} ({where}): the work was done elsewhere"
    else:
        return outcome
    return replace(outcome, results=_all_lanes(leg, Status.INFRA, message))


def _find_files(leg: Leg, options: Options, leases: contextlib.ExitStack) -> tuple[Path, Path | None]:
    """The file to open, and the projector where a lane reads one.

    What the store lends is kept from removal until `leases` is closed.
    """
    if leg.subject == "twin":
        return build_twin(_recipe(leg, options), options.twins), None
    if options.model is not None:
        return options.model, options.projector
    if options.store is None:
        raise ModelMissing(
            f"the weights of {leg.family.family} are not on this machine: give the file with --model, or use --twin"
        )
    lent = [leases.enter_context(options.store.lend(files)) for files in wanted_of(leg.family)]
    model, *projectors = (files[first_shard(tuple(files))] for files in lent)
    reads_it = any(lane.name == _NEEDS_PROJECTOR for lane in leg.lanes)
    return model, projectors[0] if projectors and reads_it else None


def _recipe(leg: Leg, options: Options) -> Recipe:
    if options.twin_of is None:
        return recipe_for(leg.family.arch or "", family=leg.family.family)
    if options.twin_of.architecture != leg.family.arch:
        raise ArchitectureMismatch(
            f"{options.twin_of.path.name} is of architecture {options.twin_of.architecture!r}; "
            f"the row {leg.family.family} says {leg.family.arch!r}"
        )
    return recipe_of_header(options.twin_of)


def _describe_subject(leg: Leg, header: Header, projector: Path | None, options: Options) -> TestedSubject:
    recipe = _recipe(leg, options) if leg.subject == "twin" else None
    sha256_of = options.store.sha256_of if options.store else sha256_of_file
    paths = [*(shard.path for shard in header.shards), *([projector] if projector else [])]
    files = tuple(TestedFile(name=path.name, size=path.stat().st_size, sha256=sha256_of(path)) for path in paths)
    pinned = {file.sha256 for file in leg.family.artifact.files} if leg.family.artifact else set()
    limits = _WEIGHTS_DO_NOT if pinned.issuperset(file.sha256 for file in files) else _OTHER_FILES
    return TestedSubject(
        kind=leg.subject,
        architecture=header.architecture,
        files=files,
        recipe=recipe.digest if recipe else None,
        proves=f"{_TWIN_PROVES} ({recipe.source})" if recipe else _WEIGHTS_PROVE,
        does_not_prove=_TWIN_DOES_NOT if recipe else limits,
    )


def _untested(leg: Leg) -> TestedSubject:
    return TestedSubject(
        kind=leg.subject,
        architecture="",
        files=(),
        recipe=None,
        proves="nothing",
        does_not_prove="anything: no model was tested",
    )


def _receipt(plan: Plan, leg: Leg, started: str, subject: TestedSubject, outcome: Outcome) -> Receipt:
    return Receipt(
        leg=leg.id,
        plan=plan.digest,
        event=plan.event,
        family=leg.family.to_row(),
        pin=plan.pin.to_json(),
        build_key=leg.build_key,
        subject=subject,
        engine=outcome.loaded.engine,
        device=outcome.loaded.device,
        nodes_by_device=outcome.loaded.nodes_by_device,
        agent=__version__,
        runner=describe_runner(),
        run=describe_run(os.environ),
        started_at=started,
        finished_at=_now(),
        lanes=outcome.results,
        log=outcome.log,
    )


def _all_lanes(leg: Leg, status: Status, message: str) -> tuple[LaneResult, ...]:
    return tuple(
        LaneResult(lane=lane.name, status=status, comparisons=0, summary=message, problems=(message,))
        for lane in leg.lanes
    )


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


class _LegObserver:
    """Passes on what a child says, with its leg, and keeps the draft of the receipt."""

    def __init__(self, leg: Leg, reporter: Reporter, draft: Draft) -> None:
        self._leg = leg
        self._reporter = reporter
        self._lock = threading.Lock()
        self._kept: tuple[Receipt, tuple[LaneResult, ...]] | None = None
        self.draft = draft

    def keep(self, earlier: Receipt, results: tuple[LaneResult, ...]) -> None:
        """Take over results of `earlier`, as soon as it is known that the same libraries and device are loaded."""
        self._kept = (earlier, results)

    def loaded(self, loaded: Loaded) -> None:
        self.draft.load(loaded)
        if self._kept and same_engine(self._kept[0], self.draft.receipt):
            for result in kept(self._kept[1], self._kept[0].started_at):
                self.lane_finished(result)
        self._kept = None

    def lane_started(self, lane: str) -> None:
        with self._lock:
            self._reporter.lane_started(self._leg, lane)

    def lane_finished(self, result: LaneResult) -> None:
        self.draft.finish(result)
        with self._lock:
            self._reporter.lane_finished(self._leg, result)
