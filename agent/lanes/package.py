"""`package`: the model as a layer package loses nothing, and every stage put together from its own parts computes its layers.

An unpatched llama.cpp loads whole models only. So the file of a stage has all tensors of the model, and those that the stage
does not own are zeros. Fed with the frame of its first cut, it must hand on the frame of its last cut, or the logits, bit for
bit: then its own parts are all that its layers read.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agent.engine.model import Model
from agent.engine.session import Session
from agent.engine.stage import Stage
from agent.engine.wire import WireType
from agent.header.reader import read_header
from agent.lanes import single_step
from agent.lanes.agreement import Agreement, frames_equal
from agent.lanes.chained import brought_something, send
from agent.lanes.cuts import class_cuts, third_cuts
from agent.lanes.result import Findings, LaneResult, Status
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload
from agent.package.container import Piece, pieces_of, same_data
from agent.package.manifest import Package
from agent.package.ownership import Shared, owner_of
from agent.package.stage import StageParts, stage_parts
from agent.package.validate import validate


@dataclass(frozen=True, kw_only=True)
class Params(single_step.Params):
    """`cuts` makes the stages: "all" cuts everywhere, "classes" at one cut of every class, "thirds" makes three stages."""

    cuts: str


def run(subject: Subject, params: Params) -> LaneResult:
    """Write the package, compare it with the model, and run every stage alone."""
    without = _layers_without_tensors(subject)
    if without:
        return _not_applicable(without, subject.n_layer)
    findings = Findings("package")
    with tempfile.TemporaryDirectory(prefix="skippy-package-") as scratch:
        folder = Path(scratch)
        package = subject.package(folder / "package")
        found = validate(package, subject.header)
        findings.comparisons += found.checks
        findings.problems += found.problems
        findings.notes += found.notes
        findings.measurements |= {
            "parts": len(package.files),
            "bytes": sum(part.artifact_bytes for part in package.files),
            "tensors": found.tensors,
            "experts": found.experts,
            "manifest_sha256": package.sha256,
        }
        stages = [] if found.problems else _run_stages(findings, subject, params, package, folder / "stage.gguf")
    return findings.result(f"{found.tensors} tensors, each owned once; {len(stages)} stages alone equal bit for bit")


def _layers_without_tensors(subject: Subject) -> list[int]:
    """Layers that run on the weights of others; llama.cpp has loaded the file, so nothing is missing from it."""
    return sorted(set(range(subject.n_layer)) - {tensor.layer for tensor in subject.header.tensors})


def _not_applicable(without: list[int], n_layer: int) -> LaneResult:
    reason = (
        f"{len(without)} of {n_layer} layers have no tensors of their own, such as layer {without[0]}: the model runs blocks "
        "more than once, so no stage owns its weights alone"
    )
    return LaneResult(lane="package", status=Status.NOT_APPLICABLE, comparisons=0, summary=reason, problems=(reason,))


def _run_stages(findings: Findings, subject: Subject, params: Params, package: Package, path: Path) -> list[StageParts]:
    edges = (0, *_cuts(subject, params.cuts), subject.n_layer)
    stages = [stage_parts(package, start, end) for start, end in itertools.pairwise(edges)]
    for stage in stages:
        subject.materialise(package, stage, path)
        _expect_alone(findings, subject, stage, path)
        _run_alone(findings, subject, params.workload, stage, path)
    findings.measurements |= {
        "stages": [[stage.start, stage.end] for stage in stages],
        "largest_stage_bytes": max(stage.size for stage in stages),
        "tied": any(stage.tied for stage in stages),
    }
    return stages


def _cuts(subject: Subject, cuts: str) -> tuple[int, ...]:
    if cuts == "all":
        return subject.contract.legal_cuts
    if cuts == "classes":
        return class_cuts(subject.contract)
    return third_cuts(subject.contract) or subject.contract.legal_cuts


def _expect_alone(findings: Findings, subject: Subject, stage: StageParts, path: Path) -> None:
    """The file holds the stage's own tensors as the model has them, and of all others nothing."""
    whole = pieces_of(subject.header)
    held = pieces_of(read_header(path))
    findings.expect(
        held.keys() == whole.keys(), f"stage {stage}: its file has {len(held)} tensors, the model {len(whole)}"
    )
    for name, piece in held.items():
        owner = owner_of(piece.tensor)
        if owner == Shared.METADATA or owner in stage.owners:
            findings.expect(
                name in whole and same_data(piece, whole[name]), f"stage {stage}: {name} is not what the model has"
            )
        else:
            nothing = Piece(tensor=piece.tensor)
            findings.expect(
                same_data(piece, nothing), f"stage {stage} is not alone: it holds {name}, which it does not own"
            )


def _run_alone(findings: Findings, subject: Subject, workload: Workload, stage: StageParts, path: Path) -> None:
    """Load the file, feed the stage with the reference's frames, and compare what leaves it."""
    anatomy = subject.anatomy(workload.micro_batch)
    agreement = Agreement()
    with (
        Model(path, subject.model.device) as model,
        Stage(anatomy, Session(model, anatomy.shape), stage.start, stage.end) as alone,
    ):
        for turn in subject.reference(workload).turns:
            arriving = None
            if not stage.first:
                ports = anatomy.ports(stage.start, len(turn.tokens))
                arriving = send(subject, ports, turn.frames[stage.start], WireType.F32)
            leaving = () if stage.last else (stage.end,)
            logits, frames = alone.decode(turn.tokens, turn.position, 0, arriving, leaving)
            if stage.last:
                agreement.compare(turn.logits, logits, turn.position)
                continue
            findings.expect(
                frames_equal(turn.frames[stage.end], frames[stage.end]),
                f"stage {stage} alone: what leaves it at position {turn.position} is not what the whole model hands on",
            )
        if not stage.first:
            findings.expect(
                brought_something(alone), f"stage {stage} alone: the frame brought nothing that it did not have"
            )
    if stage.last:
        findings.comparisons += agreement.positions
        if not agreement.exact:
            findings.problems.append(f"stage {stage} alone: {agreement.first or 'nothing was compared'}")
