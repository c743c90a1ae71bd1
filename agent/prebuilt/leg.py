"""One family, one model, one set of binaries: the checks are run and a receipt is written."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent import __version__
from agent.digests import sha256_of_file
from agent.errors import AgentError, ArchitectureMismatch, InfraError, UsageError
from agent.header.layers import layer_kinds_from_metadata
from agent.header.reader import Header, read_model_header
from agent.header.role import require_causal
from agent.lanes.result import LaneResult, Status
from agent.layer_kind import LayerKind
from agent.prebuilt.adapter import probe
from agent.prebuilt.binaries import Toolset, find_binaries
from agent.prebuilt.checks import CHECKS, Check, run_checks, without_run
from agent.prebuilt.package import MANIFEST
from agent.prebuilt.target import Bench, Target, contract_of
from agent.receipt.receipt import Receipt, TestedFile, TestedSubject, write_receipt
from agent.receipt.surroundings import describe_run, describe_runner
from agent.runner.examine import examine
from matrixgen.canonical import digest_of
from matrixgen.family import Family
from matrixgen.files import write_atomically
from matrixgen.pin import Pin

EVENT = "prebuilt"
CHECKS_FILE = "checks.json"
_PROVES = (
    "that these binaries, on this model and device, gave the tokens split that they gave whole, for the prompts and cuts of "
    "the lanes; `prebuilt-tokens` compares whole answers, the other lanes one token each"
)
_DOES_NOT_PROVE = "logits that differ without changing a token, other devices, other prompts, or longer contexts"
_NO_CHAIN = "three stages need two cuts, and one was given: add another --cut, or none at all"
_NO_RECORD = "; nor of which llama.cpp these binaries are: their folder holds no record of a build"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to test.

    Attributes:
        family, pin: the manifest's row and pin.
        model: path of the GGUF.
        recipe: digest of the twin's recipe; None for weights.
        folder: of the binaries.
        commit, build_key: what a record of the build says of them; None and empty without one.
        names: checks to run; empty for all that these binaries have.
        cuts: where it may be cut; empty to ask llama.cpp.
        backend: cpu, cuda, metal, vulkan or rocm.
        width: of an activation; None for the embedding length of the model.
        package: folder of a layer package.
        receipts: folder of the receipts.
        seconds: that one program may run.
        startup_seconds: that a server may take.
        tokens: of each answer that is compared.
    """

    family: Family
    pin: Pin
    model: Path
    recipe: str | None
    folder: Path
    commit: str | None
    build_key: str
    names: tuple[str, ...]
    cuts: tuple[int, ...]
    backend: str
    width: int | None
    package: Path | None
    receipts: Path
    seconds: float
    startup_seconds: float
    tokens: int

    @property
    def leg(self) -> str:
        """Id of the leg, as in a plan."""
        return f"{self.family.family}@{self.backend}"

    @property
    def home(self) -> Path:
        """Folder of the leg."""
        return self.receipts / self.leg


@dataclass
class _State:
    """What is known so far; a receipt can be made of it at any time."""

    started: str
    checks: tuple[Check, ...]
    results: list[LaneResult] = field(default_factory=list)
    header: Header | None = None
    files: tuple[TestedFile, ...] = ()
    tools: Toolset | None = None
    dialect: str = ""


def certify_binaries(
    request: Request, on_result: Callable[[LaneResult], None], on_note: Callable[[str], None]
) -> Receipt:
    """Run the checks and write the receipt, which is also on the disk, unfinished, before anything is run.

    Raises:
        UsageError: what was asked for does not fit the model.
    """
    state = _State(started=_now(), checks=_selected(request))
    _write(request, state)
    try:
        bench, target = _prepare(request, state, on_note)
        for result in run_checks(state.checks, bench, target):
            state.results.append(result)
            on_result(result)
        bench.tools.require_unchanged()
    except UsageError:
        raise  # the receipt stays unfinished, which is red
    except AgentError as error:
        status = Status.INFRA if isinstance(error, InfraError) else Status.FAIL
        state.results = [without_run(check, status, str(error)) for check in state.checks]
        for result in state.results:
            on_result(result)
    return _write(request, state)


def _selected(request: Request) -> tuple[Check, ...]:
    """The checks that are owed, before the binaries were asked what they have.

    Raises:
        UsageError: one was asked for by name, and what it needs was not given.
    """
    if "package" in request.names and request.package is None:
        raise UsageError("the check `package` needs a layer package: give its folder with --package")
    if "chain" in request.names and len(request.cuts) == 1:
        raise UsageError(f"the check `chain` cannot run: {_NO_CHAIN}")
    return tuple(check for name, check in CHECKS.items() if name in request.names or _by_default(request, name))


def _by_default(request: Request, name: str) -> bool:
    if request.names:
        return False
    return (name != "package" or request.package is not None) and (name != "chain" or len(request.cuts) != 1)


def _prepare(request: Request, state: _State, on_note: Callable[[str], None]) -> tuple[Bench, Target]:
    state.tools = find_binaries(request.folder, commit=request.commit, build_key=request.build_key)
    header = state.header = read_model_header(request.model)
    require_causal(header)
    if header.architecture != request.family.arch:
        raise ArchitectureMismatch(
            f"{request.model.name} is of architecture {header.architecture!r}; the row {request.family.family} says "
            f"{request.family.arch!r}. Correct the row, or test the file under the family that it belongs to."
        )
    state.files = _tested_files(header, request.package)
    dialect = probe(state.tools)
    state.dialect = dialect.name
    if not request.names:
        if len(request.cuts) == 1:
            on_note(f"chain is left out: {_NO_CHAIN}")
        for check in state.checks:
            if command := check.dropped_in(dialect):
                on_note(f"{check.name} is left out: releases like this one have no `{command}` any more")
        state.checks = tuple(check for check in state.checks if not check.dropped_in(dialect))
    bench = Bench(
        tools=state.tools,
        dialect=dialect,
        folder=request.home.resolve(),
        seconds=request.seconds,
        startup_seconds=request.startup_seconds,
        tokens=request.tokens,
    )
    return bench, _target(request, header, state.files)


def _target(request: Request, header: Header, files: Sequence[TestedFile]) -> Target:
    layers = header.trunk_layers
    kinds = layer_kinds_from_metadata(header)
    cuts = request.cuts
    if wrong := [cut for cut in cuts if not 0 < cut < layers]:
        raise UsageError(f"--cut {wrong[0]}: {request.model.name} has {layers} layers, so a cut is 1 to {layers - 1}")
    if not cuts:
        found = _examine(request.model)
        cuts = tuple(found["legal_cuts"])
        kinds = tuple(map(LayerKind, found["state"]))
    model = request.model.resolve()
    first = next(file for file in files if file.name == header.shards[0].path.name)
    return Target(
        model=model if len(header.shards) == 1 else header.shards[0].path.resolve(),
        header=header,
        family=request.family,
        contract=contract_of(layers, cuts, kinds or (LayerKind.UNKNOWN,) * layers),
        backend=request.backend,
        width=request.width or header.get_uint(header.key("embedding_length")),
        sha256=first.sha256,
        package=request.package.resolve() if request.package else None,
    )


def _examine(model: Path) -> dict[str, Any]:
    """What llama.cpp says of the model: not the one under test, so that its refusal says nothing of that."""
    try:
        contract: dict[str, Any] = examine(model, "cpu")["contract"]
    except AgentError as error:
        raise InfraError(f"where the model may be cut could not be found out: {error}. Say it with --cut") from error
    return contract


def _tested_files(header: Header, package: Path | None) -> tuple[TestedFile, ...]:
    paths = [shard.path for shard in header.shards]
    if package is not None:
        paths.append(package / MANIFEST)
    found = []
    for path in paths:
        sha256 = sha256_of_file(path)
        found.append(TestedFile(name=path.name, size=path.stat().st_size, sha256=sha256))
    return tuple(found)


def _write(request: Request, state: _State) -> Receipt:
    """Write the receipt as far as it goes, and beside it what was asked for, which its `plan` is the digest of."""
    owed = _owed(request, state.checks)
    finished = {result.lane: result for result in state.results}
    receipt = Receipt(
        leg=request.leg,
        plan=digest_of(owed),
        event=EVENT,
        family=request.family.to_row(),
        pin=request.pin.to_json(),
        build_key=state.tools.key if state.tools else "",
        subject=_subject(request, state),
        engine=_engine(state),
        device=_device(request.backend) if finished else {},
        nodes_by_device={},  # the binaries do not say
        agent=__version__,
        runner=describe_runner(),
        run=describe_run(os.environ),
        started_at=state.started,
        finished_at=_now(),
        lanes=tuple(
            finished.get(check.lane) or without_run(check, Status.INFRA, "the leg did not run to its end")
            for check in state.checks
        ),
        log="",
    )
    write_receipt(receipt, request.receipts)
    write_atomically(request.home / CHECKS_FILE, json.dumps(owed, indent=1) + "\n")
    return receipt


def _owed(request: Request, checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "event": EVENT,
        "leg": request.leg,
        "pin": request.pin.to_json(),
        "family": request.family.to_row(),
        "lanes": [check.lane for check in checks],
        "cuts": list(request.cuts),
        "tokens": request.tokens,
    }


def _subject(request: Request, state: _State) -> TestedSubject:
    tested = bool(state.files)
    unknown = _NO_RECORD if state.tools is not None and state.tools.commit is None else ""
    return TestedSubject(
        kind="twin" if request.recipe else "weights",
        architecture=state.header.architecture if state.header else "",
        files=state.files,
        recipe=request.recipe,
        proves=_PROVES if tested else "nothing",
        does_not_prove=_DOES_NOT_PROVE + unknown if tested else "anything: no model was tested",
    )


def _engine(state: _State) -> dict[str, Any]:
    if state.tools is None:
        return {}
    return {
        "version": state.tools.commit or "unknown",
        "libraries": dict(state.tools.digests),  # llama.cpp is linked into the binaries
        "dialect": state.dialect,
    }


def _device(backend: str) -> dict[str, Any]:
    if backend == "cpu":
        return {"name": "CPU", "description": str(describe_runner()["processor"]), "backend": backend}
    return {"name": backend, "description": "as the binaries chose it", "backend": backend}


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
