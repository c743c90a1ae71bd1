"""All checks that the product's binaries are put to, by name, and how they are run one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.errors import AgentError, InfraError
from agent.lanes.result import LaneResult, Status
from agent.prebuilt.adapter import Dialect
from agent.prebuilt.binaries import CORRECTNESS, PACKAGE, SERVER
from agent.prebuilt.handoff import check_handoff
from agent.prebuilt.oracle import check_tokens
from agent.prebuilt.package import check_package
from agent.prebuilt.parity import check_chain, check_matrix, check_scan, check_single_step
from agent.prebuilt.target import Bench, Target, offloaded_layers

_PREFIX = "prebuilt-"  # a lane of the product's own checks is never taken for one of ours


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check.

    Attributes:
        name: what the command line calls it.
        commands: (binary, command) that it runs.
        run: does it; gets the name of its lane.
    """

    name: str
    commands: tuple[tuple[str, str], ...]
    run: Callable[[Bench, Target, str], LaneResult]

    @property
    def lane(self) -> str:
        """Its name in a receipt."""
        return f"{_PREFIX}{self.name}"

    def dropped_in(self, dialect: Dialect) -> str:
        """The command that the product gave up, so that the check is not owed; empty if there is none."""
        return next((f"{binary} {name}" for binary, name in self.commands if (binary, name) in dialect.dropped), "")


_CHECKS = (
    Check(name="single-step", commands=((CORRECTNESS, "single-step"),), run=check_single_step),
    Check(name="chain", commands=((CORRECTNESS, "chain"),), run=check_chain),
    Check(name="split-scan", commands=((CORRECTNESS, "split-scan"),), run=check_scan),
    Check(name="dtype-matrix", commands=((CORRECTNESS, "dtype-matrix"),), run=check_matrix),
    Check(name="state-handoff", commands=((CORRECTNESS, "state-handoff"),), run=check_handoff),
    Check(name="package", commands=((PACKAGE, "preflight"), (CORRECTNESS, "single-step")), run=check_package),
    Check(name="tokens", commands=((SERVER, "serve-openai"), (SERVER, "serve-binary")), run=check_tokens),
)
CHECKS: Mapping[str, Check] = {check.name: check for check in _CHECKS}


def run_checks(checks: Sequence[Check], bench: Bench, target: Target) -> Iterator[LaneResult]:
    """Run `checks` in order; whatever goes wrong in one is its result, and the others still run."""
    for check in checks:
        started = time.perf_counter()
        try:
            for binary, _ in check.commands:
                bench.tools.need(binary)
            result = _with_evidence(check.run(bench, target, check.lane), bench, target)
        except AgentError as error:
            status = Status.INFRA if isinstance(error, InfraError) else Status.FAIL
            result = without_run(check, status, str(error))
        except OSError as error:
            result = without_run(check, Status.INFRA, f"the system refused what the check needs: {error}")
        yield replace(result, seconds=time.perf_counter() - started)


def without_run(check: Check, status: Status, message: str) -> LaneResult:
    """The result of a check that could not run."""
    return LaneResult(lane=check.lane, status=status, comparisons=0, summary=message, problems=(message,))


def _with_evidence(result: LaneResult, bench: Bench, target: Target) -> LaneResult:
    """A pass counts only for the backend on which the work was done, as far as the logs of the lane show it."""
    if result.status is not Status.PASS:
        return result
    offloaded = offloaded_layers(bench.folder / result.lane)
    if target.backend == "cpu" and offloaded:
        message = f"{offloaded} layers were put on an accelerator: nothing is known about the CPU"
    elif target.backend != "cpu" and not offloaded:
        message = f"no log says that a layer was put on {target.backend}: it may all have run on the CPU"
    else:
        return result
    return replace(result, status=Status.INFRA, summary=message, problems=(message,))
