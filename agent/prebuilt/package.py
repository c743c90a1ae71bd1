"""A layer package: the product's own preflight, and two stages that are each made of its files alone."""

from __future__ import annotations

from agent.digests import sha256_of_file
from agent.errors import InfraError
from agent.lanes.cuts import middle_cut
from agent.lanes.result import Findings, LaneResult
from agent.prebuilt.ending import Trouble, conclude
from agent.prebuilt.judge import judge_step
from agent.prebuilt.judge_package import judge_preflight
from agent.prebuilt.parity import exact_wire, two_stages, wire_options
from agent.prebuilt.runs import run_correctness, run_preflight
from agent.prebuilt.target import Bench, Target

MANIFEST = "model-package.json"
_MODE = "layer-package"


def check_package(bench: Bench, target: Target, lane: str) -> LaneResult:
    """Every part is there once, whole and with its digest; a split made of the package gives the whole model's token."""
    if target.package is None:
        raise InfraError("no layer package was given: name its folder with --package")
    manifest = sha256_of_file(target.package / MANIFEST)
    cut = middle_cut(target.contract)
    findings, troubles = Findings(lane), list[Trouble]()
    run = run_preflight(bench, target, target.package, 2, kept=(lane, "preflight"))
    runs = {"preflight": run.describe()}
    if run.report is not None:
        judge_preflight(run.report, target, manifest, findings)
    if run.trouble:
        troubles.append(run.trouble)
    elif not findings.problems:  # a stage made of a broken package would only hide what is broken
        asked = two_stages(target, cut, exact_wire(bench), load_mode=_MODE, manifest_sha256=manifest)
        options = {
            "--split-layer": cut,
            "--stage-model": target.package,
            "--stage-load-mode": _MODE,
            **wire_options(bench),
        }
        run = run_correctness(
            bench, target, "single-step", options, ports=("--stage1-bind-addr",), kept=(lane, "single-step")
        )
        runs["single-step"] = run.describe()
        if run.report is not None:
            judge_step(run.report, asked, target, findings)
        if run.trouble:
            troubles.append(run.trouble)
    findings.measurements["runs"] = runs
    return conclude(findings, troubles, f"every part has its digest; cut at {cut}: the same token")
