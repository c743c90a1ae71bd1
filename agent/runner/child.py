"""The child: loads llama.cpp and the model, runs the lanes it is told to, and reports each on standard output.

Whatever native code prints goes to standard error, which the parent keeps. The child ends when its standard input closes, so
that it never outlives its parent.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from agent.errors import AgentError, InfraError, ModelRefused
from agent.lanes.result import LaneResult, Status
from agent.runner.job import Job

if TYPE_CHECKING:
    from agent.engine.library import Library
    from agent.lanes.subject import Subject


def main() -> int:
    """Run one job."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code may print: standard output carries events only
    job = Job.from_line(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _run(job, events)
    except AgentError as error:
        _emit(events, event="stopped", status=_status_of(error), message=str(error))
    except MemoryError:
        _emit(events, event="stopped", status=Status.INFRA, message="out of memory")
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _run(job: Job, events: TextIO) -> None:
    from agent.engine.devices import choose_device
    from agent.engine.library import load_library
    from agent.engine.model import Model
    from agent.header.loadable import why_refused
    from agent.header.reader import read_model_header
    from agent.lanes.subject import DEFAULT_MICRO_BATCH, Expectations, Subject

    # what is loaded by now stays; graphs and transcripts have no cycles, and to look for some took a twentieth of the time
    gc.freeze()
    gc.set_threshold(100_000)
    library = load_library()
    device = choose_device(job.device)
    header = read_model_header(job.model)
    expectations = Expectations(
        family=job.family,
        random_weights=job.random_weights,
        recorded=job.recorded,
        twin=job.twin,
        projector=job.projector,
    )
    try:
        model = Model(job.model, device)
    except ModelRefused as error:
        raise ModelRefused(f"{error}; {why_refused(header)}") from error
    with Subject(model, header, expectations, job.threads) as subject:
        nodes = dict(subject.anatomy(DEFAULT_MICRO_BATCH).step(1).devices)
        _emit(
            events,
            event="loaded",
            engine=engine_facts(library),
            device={"name": device.name, "description": device.description, "backend": device.backend},
            nodes_by_device=nodes,
        )
        for name, params in job.lanes:
            _emit(events, event="lane-started", lane=name)
            started = time.perf_counter()
            result = _guarded(name, functools.partial(_check, subject, name, params))
            _emit(events, event="lane-finished", result=result.to_json() | {"seconds": time.perf_counter() - started})


def engine_facts(library: Library) -> dict[str, Any]:
    """What a receipt says of the libraries under test."""
    from agent.digests import library_digests

    return {
        "version": library.version,
        "libraries": library_digests(library.folder),
        "build": library.build,
        "followed_structs": library.followed,
    }


def _check(subject: Subject, name: str, params: Mapping[str, Any]) -> LaneResult:
    from agent.lanes.catalog import find_lane

    *seeded, lane = name.split("/")
    for seed in seeded:
        from agent.faults.catalog import find_fault  # most batteries seed none, and need not load them

        fault = find_fault(seed)
        if not fault.applies(subject.contract):
            return stopped(name, Status.NOT_APPLICABLE, f"{fault.name} cannot show on this model")
        subject = fault.seed(subject)
    return replace(find_lane(lane).run(subject, params), lane=name)


def _guarded(name: str, check: Callable[[], LaneResult]) -> LaneResult:
    try:
        return check()
    except AgentError as error:
        return stopped(name, _status_of(error), str(error))
    except MemoryError:
        return stopped(name, Status.INFRA, "out of memory")
    except Exception as error:  # noqa: BLE001 - a fault of ours must not be taken for the model's, nor for a pass
        return stopped(name, Status.INFRA, f"skippy-agent itself failed: {type(error).__name__}: {error}")


def stopped(lane: str, status: Status, message: str) -> LaneResult:
    """The result of a lane that could not finish."""
    return LaneResult(lane=lane, status=status, comparisons=0, summary=message, problems=(message,))


def _status_of(error: AgentError) -> Status:
    return Status.INFRA if isinstance(error, InfraError) else Status.FAIL


def _emit(events: TextIO, **event: Any) -> None:
    events.write(json.dumps(event, default=_plain) + "\n")
    events.flush()


def _plain(value: Any) -> Any:
    # numpy scalars are the only values that json does not know here
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"{type(value).__name__} is not JSON")
    return item()


if __name__ == "__main__":
    sys.exit(main())
