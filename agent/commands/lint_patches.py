"""`skippy-agent lint-patches`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from agent.build.findings import Finding
from agent.build.patches.apply import check_applies
from agent.build.patches.queue import check_names, queue_digest, read_queue
from agent.build.patches.removed import REVIEWED, check_removed, read_reviewed
from agent.build.report import write_findings
from agent.errors import HeadersUnreadable


def run(patches: Path, *, llama_src: Path | None, reviewed: Path | None, as_json: bool) -> int:
    """Lint a patch queue; returns the exit code."""
    queue = read_queue(patches)
    listed = reviewed or patches / REVIEWED
    marks = read_reviewed(listed) if reviewed or listed.is_file() else frozenset()
    findings: list[Finding] = [*check_names(queue)]
    if llama_src:
        _require_folder(llama_src)
        findings += check_applies(queue, llama_src)
    findings += check_removed(queue, marks, listed.name)
    errors = sum(finding.severity == "error" for finding in findings)
    digest = queue_digest(queue)
    if as_json:
        answer = {
            "ok": not errors,
            "patches": [{"name": patch.name, "sha256": patch.sha256} for patch in queue],
            "digest": digest,
            "applied_to": llama_src.name if llama_src else None,
            "findings": [finding.to_json() for finding in findings],
        }
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
    else:
        write_findings(findings, sys.stdout)
        tried = f"applied to {llama_src.name}" if llama_src else "not applied to anything (no --llama-src)"
        sys.stdout.write(
            f"{len(queue)} patches, digest {digest}, {tried}: {errors} errors, {len(findings) - errors} warnings\n"
        )
    return 1 if errors else 0


def _require_folder(llama_src: Path) -> None:
    try:
        if llama_src.is_dir():
            return
        trouble = "is not a folder"
    except OSError as error:
        trouble = f"cannot be looked at ({error.strerror})"
    raise HeadersUnreadable(f"{llama_src} {trouble}: give the root of a llama.cpp checkout")
