"""Does the binding see the structs as the libraries do, or can it follow them? Asked before any model is opened."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.binding.layout import Layout
from agent.build.compare import compare_layouts
from agent.build.findings import Finding
from agent.build.readback import check_defaults, read_back
from agent.build.record import LIBRARIES, RECORD
from agent.errors import EngineUnavailable, FunctionMissing, LayoutInvalid, LayoutUnknown

_WHY_FOLLOWED = "the agent reads and writes it as the record of the build says, so nothing lies at a wrong place"
_WHY_MISSING = "an older llama.cpp lacks the newest functions, and nothing here calls these"
_NOTHING = "nothing; a binding of this llama.cpp would be equal"


@dataclass(frozen=True, kw_only=True)
class AbiReport:
    """What was compared.

    Attributes:
        comparisons: fields and default values that were looked at.
        findings: what differs.
        followed: structs that differ and are used as the build has them.
        facts: versions and counts, for people and receipts.
    """

    comparisons: int
    findings: tuple[Finding, ...]
    followed: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if something was compared and nothing is an error."""
        return self.comparisons > 0 and not any(finding.severity == "error" for finding in self.findings)


def check_abi(*, actual: Layout | None, libraries: Path | None) -> AbiReport:
    """Compare the binding with `actual` (the layout of headers, where there is one) and read `libraries`' defaults back.

    Args:
        actual: layout of the headers that the libraries were compiled with; None where it is not known.
        libraries: folder of the libraries; None for the binding's own. Beside a record, its structs are followed.

    Raises:
        EngineUnavailable: there is no binding here.
    """
    comparisons = 0
    findings: tuple[Finding, ...] = ()
    facts: dict[str, Any] = {}
    if actual is not None:
        # the binding's own libraries always load, so its declarations are seen even where those under test do not
        compared = compare_layouts(read_back(None).layout, actual)
        comparisons += compared.fields
        findings = compared.findings
        facts |= {"structs": compared.structs, "fields": compared.fields, "layout": actual.source}
    try:
        read = read_back(libraries)
    except (EngineUnavailable, LayoutInvalid) as error:
        if libraries is None:
            raise
        return AbiReport(comparisons=comparisons, findings=(*findings, _refused(libraries, error)), facts=facts)
    count, wrong = check_defaults(read.values)
    facts |= {
        "defaults": count,
        "version": read.version,
        "binding": read.layout.source,
        "libraries": str(read.folder),
        "followed": list(read.followed),
        "missing_functions": list(read.missing),
    }
    findings = (*_softened(findings, read.followed), *wrong, *_notes(libraries, read.followed, read.missing))
    return AbiReport(comparisons=comparisons + count, findings=findings, followed=read.followed, facts=facts)


@contextlib.contextmanager
def beside_layout(libraries: Path, layout: Layout) -> Iterator[Path]:
    """The libraries in a folder where they lie beside `layout`, as those of a build lie beside their record."""
    with tempfile.TemporaryDirectory(prefix="skippy-abi-") as temporary:
        (Path(temporary) / RECORD).write_text(json.dumps({"layout": layout.to_json()}), encoding="utf-8")
        (Path(temporary) / LIBRARIES).symlink_to(libraries.resolve())
        yield Path(temporary) / LIBRARIES


def _softened(findings: Iterable[Finding], followed: Collection[str]) -> Iterator[Finding]:
    for finding in findings:
        yield replace(finding, severity="warning", fix=_NOTHING) if finding.file in followed else finding


def _notes(libraries: Path | None, followed: Iterable[str], missing: tuple[str, ...]) -> Iterator[Finding]:
    for name in followed:
        yield Finding(
            id="AB008",
            severity="warning",
            file=name,
            line=0,
            message="lies elsewhere than the binding declares it, and is followed",
            why=_WHY_FOLLOWED,
            fix=_NOTHING,
        )
    if missing:
        yield Finding(
            id="AB009",
            severity="warning",
            file=str(libraries or "the libraries of the binding"),
            line=0,
            message=f"{len(missing)} functions that the binding declares are not there: {', '.join(missing)}",
            why=_WHY_MISSING,
            fix=_NOTHING,
        )


def _refused(libraries: Path, error: EngineUnavailable | LayoutInvalid) -> Finding:
    if isinstance(error, LayoutInvalid):
        name, why = "AB013", "a struct without a certain mapping is written and read at the wrong places"
        fix = "take a binding of this llama.cpp (docs/build.md)"
    elif isinstance(error, FunctionMissing):
        name, why = "AB012", "every lane calls it"
        fix = "take a binding of this llama.cpp (docs/build.md)"
    elif isinstance(error, LayoutUnknown):
        name, why = "AB014", "what cannot be compared may lie anywhere, and defaults alone show only some moves"
        fix = "give the build with its record, or the checkout that it was made of with --llama-src"
    else:
        name, why = "AB011", "libraries that lack a symbol, or need a newer system, are of another pin or machine"
        fix = "build the pin on the oldest system that must run it"
    return Finding(id=name, severity="error", file=str(libraries), line=0, message=str(error), why=why, fix=fix)
