"""Rules that the JSON Schemas cannot say. All of them run, and all findings are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrixgen import rules_families, rules_quarantine, rules_setup
from matrixgen.findings import Finding, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrixgen.content import Manifest
    from matrixgen.source import Document

RULES = (*rules_families.RULES, *rules_setup.RULES, *rules_quarantine.RULES)


def problems_of(manifest: Manifest, today: str | None = None) -> list[Problem]:
    """What all rules say, without lines: enough to know whether the manifest can be used."""
    problems = [problem for rule in RULES for problem in rule(manifest)]
    return problems if today is None else [*problems, *rules_quarantine.expired(manifest, today)]


def located(problems: Sequence[Problem], documents: Mapping[str, Document]) -> list[Finding]:
    """The problems with their lines, in the order of file and line. `documents` is keyed by name, as in pin.

    A problem of a file that is none of them has line 0.
    """
    by_file = {document.name: document for document in documents.values()}
    lines = {file: by_file[file].lines() for file in {problem.file for problem in problems} & by_file.keys()}
    findings = [
        Finding(
            id=problem.id,
            severity=problem.severity,
            file=problem.file,
            pointer=problem.pointer,
            line=by_file[problem.file].line(problem.pointer, lines[problem.file]) if problem.file in by_file else 0,
            message=problem.message,
            fix=problem.fix,
        )
        for problem in problems
    ]
    return sorted(findings, key=lambda f: (f.file, f.line, f.pointer, f.id))
