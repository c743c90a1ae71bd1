"""Does the binding see the structs as the libraries do? Asked before any model is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.build.compare import compare_layouts
from agent.build.findings import Finding
from agent.build.layout import Layout
from agent.build.readback import check_defaults, read_back
from agent.errors import EngineUnavailable


@dataclass(frozen=True, kw_only=True)
class AbiReport:
    """What was compared.

    Attributes:
        comparisons: fields and default values that were looked at.
        findings: what differs.
        facts: versions and counts, for people and receipts.
    """

    comparisons: int
    findings: tuple[Finding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if something was compared and nothing is an error."""
        return self.comparisons > 0 and not any(finding.severity == "error" for finding in self.findings)


def check_abi(*, actual: Layout | None, libraries: Path | None) -> AbiReport:
    """Compare the binding with `actual` (the layout of headers, where there is one) and read `libraries`' defaults back.

    Args:
        actual: layout of the headers that the libraries were compiled with; None where it is not known.
        libraries: folder of the libraries; None for the binding's own.

    Raises:
        EngineUnavailable: there is no binding here.
    """
    comparisons = 0
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    if actual is not None:
        # the binding's own libraries always load, so its declarations are seen even where those under test do not
        compared = compare_layouts(read_back(None).layout, actual)
        comparisons += compared.fields
        findings += compared.findings
        facts |= {"structs": compared.structs, "fields": compared.fields, "layout": actual.source}
    try:
        read = read_back(libraries)
    except EngineUnavailable as error:
        if libraries is None:
            raise
        findings.append(
            Finding(
                id="AB011",
                severity="error",
                file=str(libraries),
                line=0,
                message=str(error),
                why="libraries that lack a symbol, or need a newer system, are of another pin or machine",
                fix="build the pin that the binding was made for, on the oldest system that must run it",
            )
        )
        return AbiReport(comparisons=comparisons, findings=tuple(findings), facts=facts)
    count, wrong = check_defaults(read.values)
    findings += wrong
    facts |= {"defaults": count, "version": read.version, "binding": read.layout.source, "libraries": str(read.folder)}
    return AbiReport(comparisons=comparisons + count, findings=tuple(findings), facts=facts)
