"""Plans, keys and findings as text for people. Everything here returns strings; only the command line prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click import style

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrixgen.family import Family
    from matrixgen.findings import Finding
    from matrixgen.keys import Key
    from matrixgen.leg import Plan

_COLOUR = {"error": "red", "warning": "yellow"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, without a trailing blank."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    return "\n".join([style(lines[0].rstrip(), bold=True), *(line.rstrip() for line in lines[1:])])


def plan_table(plan: Plan) -> str:
    """One line a leg, then what was skipped, then the sums."""
    rows = [
        (
            leg.id,
            "-" if leg.family.tier is None else str(leg.family.tier),
            leg.family.arch or "-",
            leg.subject,
            str(len(leg.lanes)),
            leg.runner,
            f"{leg.timeout_minutes} min",
            gigabytes(sum(file.size or 0 for file in leg.files)) if leg.files else "-",
        )
        for leg in plan.legs
    ]
    text = [table(("LEG", "TIER", "ARCH", "SUBJECT", "LANES", "RUNNER", "TIME-OUT", "DOWNLOAD"), rows)] if rows else []
    if plan.skipped:
        text += ["", style("Not as asked", bold=True), *skipped_lines(plan)]
    download = sum(file.size or 0 for leg in plan.legs for file in leg.files)
    sums = [count(len(plan.legs), "leg"), count(len(plan.builds), "build"), f"{gigabytes(download)} of weights"]
    text += ["", f"{plan.event}: {', '.join(sums)}", f"plan {plan.digest}"]
    return "\n".join(text).lstrip("\n")


def skipped_lines(plan: Plan) -> list[str]:
    """What is not tested as asked, and why: one line for each, or for all families that share their reason."""
    families: dict[str, list[str]] = {}
    for entry in plan.skipped:
        families.setdefault(entry.reason, []).append(entry.family)
    from textwrap import wrap

    lines = []
    for reason, names in families.items():
        if len(names) == 1:
            lines.append(f"  {style(names[0], fg='yellow')}: {reason}")
        else:
            lines.append(f"  {style(f'{len(names)} families', fg='yellow')}: {reason}")
            lines += wrap(
                ", ".join(names), 110, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            )
    return lines


def findings_text(findings: Sequence[Finding]) -> str:
    """`file:line: severity id pointer: message`, and below it the fix, for each finding."""
    return "\n".join(line for finding in findings for line in _finding_lines(finding))


def _finding_lines(finding: Finding) -> Iterator[str]:
    severity = style(finding.severity, fg=_COLOUR[finding.severity], bold=True)
    where = f"{finding.file}:{finding.line}" if finding.line else finding.file
    yield f"{style(where, bold=True)}: {severity} {finding.id} {finding.pointer or '/'}: {finding.message}"
    yield f"    fix: {finding.fix}"


def summary(findings: Sequence[Finding]) -> str:
    """How many errors and warnings there are."""
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    return f"{count(errors, 'error')}, {count(warnings, 'warning')}"


def keys_text(keys: Sequence[tuple[str, Key]], *, why: bool) -> str:
    """One line a key; with `why` also the parts that it is made of."""
    lines = []
    for what, key in keys:
        lines.append(f"{style(what, bold=True)}  {key.text}")
        if why:
            width = max(len(name) for name, _ in key.parts)
            lines += [f"    {name.ljust(width)}  {value}" for name, value in key.parts]
    return "\n".join(lines)


def inventory_table(models: Mapping[str, Sequence[Family]], priority: str | None) -> str:
    """One line a model file and row."""
    rows = [
        (stem, row.family, "-" if row.tier is None else str(row.tier), row.priority, row.status)
        for stem, families in models.items()
        for row in families
        if priority in (None, row.priority)
    ]
    return table(("MODEL FILE", "FAMILY", "TIER", "PRIORITY", "STATUS"), rows)


def count(number: int, noun: str) -> str:
    """`1 leg`, `2 legs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def gigabytes(size: int) -> str:
    """Bytes as GB (10^9), or MB below one."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
