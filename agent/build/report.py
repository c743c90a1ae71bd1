"""Findings for people: errors first, each with its reason and the next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from agent.build.findings import Finding


def write_findings(findings: Sequence[Finding], stream: TextIO) -> None:
    """Write `findings` to `stream`; reason and next step are not repeated where they are those of the finding before."""
    before = ("", "")
    for finding in sorted(findings, key=lambda finding: finding.severity != "error"):
        stream.write(f"{finding}\n")
        if (finding.why, finding.fix) != before:
            stream.write(f"  why: {finding.why}\n  fix: {finding.fix}\n")
        before = (finding.why, finding.fix)
