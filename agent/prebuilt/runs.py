"""One run of `skippy-correctness` or `skippy-model-package`: started, followed to its end, its report read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.errors import InfraError, ReportInvalid, ReportMissing
from agent.lanes.result import Status
from agent.prebuilt.adapter import Options
from agent.prebuilt.binaries import CORRECTNESS, PACKAGE, SERVER
from agent.prebuilt.ending import Trouble, trouble_of
from agent.prebuilt.ports import address, free_ports, is_taken
from agent.prebuilt.processes import Ended, run_program
from agent.prebuilt.report import Report, read_report
from agent.prebuilt.stages import StageEnd, stage_ends, write_shim
from agent.prebuilt.target import Bench, Place, Target

PROMPT = "The river rises in the hills, runs past three towns and reaches the sea."
_CONTEXT = 512
_TRIES = (
    3  # a port may be taken between the moment it is chosen and the moment it is used, or a stage come too late off it
)
_REPORT = "report.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run left: its report, where it can be used, what was wrong with its end, and how often it was begun."""

    report: Report | None
    trouble: Trouble | None
    exit_code: int
    seconds: float
    tries: int = 1

    def describe(self) -> dict[str, Any]:
        """Facts for a lane's measurements."""
        from matrixgen.canonical import digest_of

        report = digest_of(dict(self.report)) if self.report is not None else None
        return {"exit_code": self.exit_code, "seconds": round(self.seconds, 3), "tries": self.tries, "report": report}


def run_correctness(
    bench: Bench,
    target: Target,
    command: str,
    options: Options,
    *,
    ports: Sequence[str] = (),
    kept: Sequence[str],
    allow_mismatch: bool = False,
) -> Run:
    """Run a command of `skippy-correctness` on the target; `ports` are its flags for addresses, `kept` names its folder.

    Raises:
        InfraError: it cannot be started, or the adapter does not know it.
    """
    for tries in range(1, _TRIES + 1):
        with bench.place(target.backend, *kept) as place:
            run = _run_once(bench, target, command, options, ports, place, allow_mismatch=allow_mismatch)
        if tries == _TRIES or run.trouble is None or not run.trouble.retry:
            return replace(run, tries=tries)
    raise AssertionError("the last try returns")


def run_preflight(bench: Bench, target: Target, package: Path, stages: int, *, kept: Sequence[str]) -> Run:
    """Run `skippy-model-package preflight`, which prints its report.

    Raises:
        InfraError: it cannot be started, or the adapter does not know it.
    """
    command = "preflight"
    words = bench.dialect.arguments(PACKAGE, command, {"--stages": stages, "--verify-sha256": True})
    with bench.place(target.backend, *kept) as place:
        argv: list[str | Path] = [bench.tools.need(PACKAGE), words[0], package, *words[1:]]
        ended = run_program(argv, place.kept / command, place.environment, bench.seconds)
        return _read(place.kept / f"{command}.out", command, ended, "valid", allow_mismatch=False)


def _run_once(
    bench: Bench,
    target: Target,
    command: str,
    options: Options,
    port_flags: Sequence[str],
    place: Place,
    *,
    allow_mismatch: bool,
) -> Run:
    report = place.kept / _REPORT
    ports = free_ports(len(port_flags))
    needed: dict[str, str | int | Path | bool] = {
        "--model": target.model,
        "--model-id": target.model_id,
        "--layer-end": target.layers,
        "--ctx-size": _CONTEXT,
        "--n-gpu-layers": target.gpu_layers,
        "--prompt": PROMPT,
        "--stage-server-bin": write_shim(bench.tools.need(SERVER), place.kept),
        "--startup-timeout-secs": round(bench.startup_seconds),
        "--report-out": report,
        **dict(zip(port_flags, map(address, ports), strict=True)),
        **({"--allow-mismatch": True} if allow_mismatch else {}),
        **options,
    }
    argv: list[str | Path] = [bench.tools.need(CORRECTNESS), *bench.dialect.arguments(CORRECTNESS, command, needed)]
    ended = run_program(argv, place.kept / command, place.environment, bench.seconds)
    taken = [port for port in ports if is_taken(port)]
    stages = stage_ends(place.kept)
    return _read(
        report,
        command,
        ended,
        "status",
        allow_mismatch=allow_mismatch,
        stages=stages,
        taken=taken,
        startup_seconds=bench.startup_seconds,
    )


def _read(
    path: Path,
    command: str,
    ended: Ended,
    verdict: str,
    *,
    allow_mismatch: bool,
    stages: Sequence[StageEnd] = (),
    taken: Sequence[int] = (),
    startup_seconds: float = 0,
) -> Run:
    report: Report | None = None
    unreadable: ReportInvalid | None = None
    try:
        report = read_report(path, command)
    except ReportMissing:
        pass
    except ReportInvalid as error:
        unreadable = error
    says_pass = None if report is None else report[verdict] in (True, "pass")
    trouble = trouble_of(
        ended,
        says_pass=says_pass,
        mismatch_allowed=allow_mismatch,
        stages=stages,
        taken_ports=taken,
        startup_seconds=startup_seconds,
    )
    if unreadable is not None and (trouble is None or (trouble.status is Status.INFRA and not ended.timed_out)):
        trouble = Trouble(status=Status.INFRA, message=f"{unreadable} (exit code {ended.code})")
    return Run(report=report, trouble=trouble, exit_code=ended.code, seconds=ended.seconds)


def trouble_from(error: InfraError) -> Trouble:
    """An error of the machine as the trouble of a run."""
    return Trouble(status=Status.INFRA, message=str(error))
