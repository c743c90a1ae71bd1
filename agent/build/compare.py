"""Two layouts side by side, and what differs in words that name the cause rather than every shifted byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.binding.layout import Field, Layout, Struct
from agent.binding.used import STRUCTS
from agent.build.findings import Finding, Severity

_WHY_MOVED = (
    "every field behind it is read and written at the wrong place, so the library gets other settings than were given"
)
_WHY_SIZE = "the struct is passed by value: the library reads bytes that were never written"
_FIX = "use a binding of this llama.cpp, or build the pin that the binding was made for (docs/build.md)"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What was compared and what was found.

    Attributes:
        structs: how many structs were on both sides.
        fields: how many fields of the expected side were looked up.
        findings: the differences.
    """

    structs: int
    fields: int
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Those that must stop a run."""
        return tuple(finding for finding in self.findings if finding.severity == "error")


def compare_layouts(
    declared: Layout,
    actual: Layout,
    *,
    required: Sequence[str] = STRUCTS,
    partial: Sequence[str] = ("ggml_tensor",),
) -> Comparison:
    """Compare what a binding declares with what the headers say.

    Args:
        declared: the binding's layout.
        actual: the layout of the headers, which is right by definition.
        required: structs whose differences are errors; those of others are warnings, and their absence is nothing.
        partial: structs that are only read through pointers, of which the binding may declare a prefix.
    """
    findings: list[Finding] = []
    structs = fields = 0
    if declared.machine != actual.machine:
        findings.append(
            _finding(
                "AB001",
                "error",
                "machine",
                f"{declared.source} is of {declared.machine}, {actual.source} of {actual.machine}",
                "layouts differ between machines and cannot be compared",
                "measure the layout on the machine that runs the libraries",
            )
        )
    for name in sorted({*required, *(declared.structs.keys() & actual.structs.keys())}):
        severity: Severity = "error" if name in required else "warning"
        ours, theirs = declared.structs.get(name), actual.structs.get(name)
        if ours is None or theirs is None:
            where = declared.source if ours is None else actual.source
            findings.append(
                _finding("AB002", severity, name, f"{where} has no struct {name}", "the engine works through it", _FIX)
            )
            continue
        structs += 1
        fields += len(theirs.fields)
        findings += _differences(ours, theirs, severity, declared.source, actual.source, prefix=name in partial)
    return Comparison(structs=structs, fields=fields, findings=tuple(findings))


def _differences(
    ours: Struct, theirs: Struct, severity: Severity, who: str, whose: str, *, prefix: bool
) -> Iterator[Finding]:
    known = {field.name for field in ours.fields}
    actual = {field.name: field for field in theirs.fields}
    yield from _missing(ours, theirs, known, severity, who, prefix=prefix)
    shift: int | None = None
    for field in ours.fields:
        other = actual.get(field.name)
        if other is None:
            # ctypes must name what C leaves anonymous; its bytes are then covered under other names
            if any(f.name not in known and f.offset == field.offset for f in theirs.fields):
                continue
            yield _finding(
                "AB004",
                severity,
                theirs.name,
                f"field {field.name} is not in {whose} ({who} has it at {field.offset})",
                _WHY_MOVED,
                _FIX,
            )
        elif field.offset != other.offset and field.offset - other.offset != shift:
            shift = field.offset - other.offset
            yield _finding(
                "AB005",
                severity,
                theirs.name,
                f"from field {field.name} on, {who} is {abs(shift)} bytes {'behind' if shift < 0 else 'ahead'}: "
                f"at {field.offset} instead of {other.offset}",
                _WHY_MOVED,
                _FIX,
            )
        elif field.offset == other.offset:
            shift = None
        if other is not None and (field.size, field.kind) != (other.size, other.kind):
            yield _finding(
                "AB006",
                severity,
                theirs.name,
                f"field {field.name} is {field.kind} of {field.size} bytes in {who} and {other.kind} of {other.size} in {whose}",
                "its value is read as something else",
                _FIX,
            )
    if not prefix and (ours.size, ours.align) != (theirs.size, theirs.align):
        yield _finding(
            "AB007",
            severity,
            theirs.name,
            f"{ours.size} bytes (alignment {ours.align}) in {who}, {theirs.size} (alignment {theirs.align}) in {whose}",
            _WHY_SIZE,
            _FIX,
        )


def _missing(
    ours: Struct, theirs: Struct, known: set[str], severity: Severity, who: str, *, prefix: bool
) -> Iterator[Finding]:
    end = max((field.offset + field.size for field in ours.fields), default=0)
    covered = [field for field in ours.fields if field.name not in {f.name for f in theirs.fields}]
    last = max((place for place, field in enumerate(theirs.fields) if field.name in known), default=-1)
    for place, field in enumerate(theirs.fields):
        if field.name in known or any(_covers(declared, field) for declared in covered):
            continue
        if prefix and place > last and field.offset >= end:
            continue
        before = theirs.fields[place - 1].name if place else None
        inside = f"in the middle, after {before}" if before else "at the start"
        where = inside if place < last else "at the end"
        yield _finding(
            "AB003",
            severity,
            theirs.name,
            f"field {field} was inserted {where}; {who} does not know it",
            _WHY_MOVED if place < last else _WHY_SIZE,
            _FIX,
        )


def _covers(declared: Field, field: Field) -> bool:
    return (
        declared.offset <= field.offset
        and field.offset + field.size <= declared.offset + declared.size
        and (declared.kind == "other")
    )


def _finding(id: str, severity: Severity, struct: str, message: str, why: str, fix: str) -> Finding:  # noqa: A002
    return Finding(id=id, severity=severity, file=struct, line=0, message=message, why=why, fix=fix)
