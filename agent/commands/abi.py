"""`skippy-agent abi`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from agent.binding.layout import Layout
from agent.build.abi import AbiReport, beside_layout, check_abi
from agent.build.archive import lend_libraries
from agent.build.assertions import assertions_of
from agent.build.compare import compare_layouts
from agent.build.findings import Finding
from agent.build.headers import LLAMA_HEADERS, declared_in, layout_of_checkout
from agent.build.report import write_findings
from agent.build.rust.mirror import check_mirror, choose, compare_with_headers, mirror_source, problems_of, read_rust
from agent.errors import UsageError
from agent.lanes.result import Findings, LaneResult
from matrixgen.files import write_atomically

LANE = "abi"


@dataclass(frozen=True, kw_only=True)
class AbiRequest:
    """What the user asked for; see `skippy-agent abi --help`."""

    llama_src: Path | None
    build: Path | None
    rust: tuple[Path, ...]
    structs: tuple[str, ...]
    headers: tuple[Path, ...]
    includes: tuple[Path, ...]
    output: Path | None
    as_json: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From the options of the command line.

        Raises:
            UsageError: they do not go together.
        """
        request = cls(**options)
        if (request.structs or request.headers) and not request.rust:
            raise UsageError("--struct and --header are about the structs of a Rust file: give it with --rust")
        return request


def run(request: AbiRequest) -> int:
    """Compare layouts; returns the exit code."""
    reports: list[AbiReport] = []
    written: dict[str, str] = {}
    if request.rust:
        reports.append(_rust(request, written))
    if request.llama_src or request.build or not request.rust:
        reports.append(_binding(request, written))
    findings = tuple(finding for report in reports for finding in report.findings)
    result = _result(reports)
    answer = {**result.to_json(), "findings": [finding.to_json() for finding in findings]}
    if request.output:
        _write(request.output, {**written, "report.json": json.dumps(answer, indent=1) + "\n"})
    if request.as_json:
        sys.stdout.write(json.dumps(answer) + "\n")
    else:
        write_findings(findings, sys.stdout)
        sys.stdout.write(f"abi: {result.status}: {result.summary}\n")
    return 0 if all(report.ok for report in reports) else 1


def _binding(request: AbiRequest, written: dict[str, str]) -> AbiReport:
    actual = layout_of_checkout(request.llama_src) if request.llama_src else None
    if request.build is None:
        _keep(actual, written)
        return check_abi(actual=actual, libraries=None)
    with lend_libraries(request.build) as (libraries, recorded):
        _keep(actual or recorded, written)
        if actual is not None and recorded is None:
            with beside_layout(libraries, actual) as place:
                report = check_abi(actual=actual, libraries=place)
            named = [
                replace(entry, file=str(request.build)) if entry.file == str(place) else entry
                for entry in report.findings
            ]
            return replace(report, findings=(*named, *_others(request, report)))
        report = check_abi(actual=actual or recorded, libraries=libraries)
        if actual is None or recorded is None:
            return report
        # is the build one of this checkout? Every struct counts here
        both = compare_layouts(recorded, actual, required=tuple(actual.structs), partial=())
        return replace(report, comparisons=report.comparisons + both.fields, findings=report.findings + both.findings)


def _others(request: AbiRequest, report: AbiReport) -> Iterator[Finding]:
    """Functions that the headers declare and the libraries lack: then these are not the headers of those libraries."""
    missing = declared_in(request.llama_src, report.facts.get("missing_functions", ())) if request.llama_src else ()
    if missing:
        yield Finding(
            id="AB015",
            severity="error",
            file=str(request.build),
            line=0,
            message=f"the headers declare {', '.join(missing)}, which the libraries lack",
            why="a layout of other headers says nothing about these libraries",
            fix="give the checkout that the libraries were made of",
        )


def _keep(layout: Layout | None, written: dict[str, str]) -> None:
    if layout is not None:
        written["llama-assertions.c"] = assertions_of(layout, LLAMA_HEADERS)
        written["llama-layout.json"] = json.dumps(layout.to_json(), indent=1) + "\n"


def _rust(request: AbiRequest, written: dict[str, str]) -> AbiReport:
    found = read_rust(request.rust)
    if request.structs:
        found = choose(found, request.structs)
    findings = [*problems_of(found)]
    written["rust-mirror.c"] = mirror_source(found)
    written["rust-layout.json"] = json.dumps(found.layout.to_json(), indent=1) + "\n"
    mirror = check_mirror(found)
    if not mirror.ok:
        findings.append(
            Finding(
                id="AB022",
                severity="error",
                file=found.layout.source,
                line=0,
                message=f"the C mirror does not compile: {(mirror.words.strip().splitlines() or ['no message'])[0]}",
                why="the compiler lays the types out otherwise than Rust's repr(C) rules say",
                fix="report it with the Rust file: the layout rules of this project or the target are wrong",
            )
        )
    comparisons = sum(2 + 2 * len(struct.fields) for struct in found.layout.structs.values())
    facts: dict[str, Any] = {"rust_structs": len(found.layout.structs), "rust_opaque": list(found.opaque)}
    if request.headers:
        compared, written["header-assertions.c"] = compare_with_headers(found, request.headers, request.includes)
        findings += compared.findings
        comparisons += compared.fields
        facts |= {"header_structs": compared.structs, "header_fields": compared.fields}
    return AbiReport(comparisons=comparisons, findings=tuple(findings), facts=facts)


def _result(reports: list[AbiReport]) -> LaneResult:
    collected = Findings(LANE)
    for report in reports:
        collected.comparisons += report.comparisons
        collected.measurements |= report.facts
        for finding in report.findings:
            (collected.problems if finding.severity == "error" else collected.notes).append(str(finding))
        if not report.comparisons:
            collected.problems.append("nothing was compared")
    return collected.result(f"{collected.comparisons} sizes, offsets and default values agree")


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder} cannot be made ({error.strerror}): give a folder that can") from error
    for name, text in texts.items():
        write_atomically(folder / name, text)
