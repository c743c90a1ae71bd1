"""What a report of `preflight` must say."""

from __future__ import annotations

from agent.lanes.result import Findings
from agent.prebuilt.judge import same
from agent.prebuilt.report import Report
from agent.prebuilt.target import Target


def judge_preflight(report: Report, target: Target, manifest_sha256: str, findings: Findings) -> None:
    """Judge a `preflight` report: each layer and shared part once, whole, with its digest; the stages cover all layers."""
    for issue in report["issues"]:
        findings.problems.append(f"package: {issue['code']}: {issue['message']}")
    if not report["valid"] and not report["issues"]:
        findings.problems.append("package: it is called invalid, and no issue says why")
    same(findings, "the report's issue_count", report["issue_count"], len(report["issues"]))
    same(findings, "the report's manifest", report["manifest_sha256"], manifest_sha256)
    findings.expect(
        report["layer_count"] in (target.layers, target.header.block_count),
        f"package: it has {report['layer_count']} layers, the model has {target.layers}",
    )
    artifacts = report["artifacts"]
    same(findings, "the report's checked_artifact_count", report["checked_artifact_count"], len(artifacts))
    for artifact in artifacts:
        whole = (
            artifact["present"] and artifact.get("size_matches_manifest") and artifact.get("sha256_matches_manifest")
        )
        findings.expect(bool(whole), f"package: {artifact['path']} is missing, cut short, changed or was not hashed")
    layers = sorted(artifact["layer_index"] for artifact in artifacts if artifact.get("layer_index") is not None)
    findings.expect(
        layers == list(range(report["layer_count"])),
        f"package: its artifacts are of the layers {layers}, not of each once",
    )
    stages = [(stage["layer_start"], stage["layer_end"]) for stage in report["stages"]]
    ends = [0, *(end for _, end in stages)]
    covered = (
        all(start == end for (start, _), end in zip(stages, ends, strict=False)) and ends[-1] == report["layer_count"]
    )
    findings.expect(bool(stages) and covered, f"package: its stages {stages} do not cover every layer once")
    for stage in report["stages"]:
        if stage["missing_parts"]:
            findings.problems.append(f"package: stage {stage['layer_start']}..{stage['layer_end']} lacks parts")
    if report["stages"] and not (
        report["stages"][0]["includes_embeddings"] and report["stages"][-1]["includes_output"]
    ):
        findings.problems.append("package: its first stage lacks the embeddings, or its last one the output")
