"""plan.json: write a plan, and read one back without trusting it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrixgen import schema
from matrixgen.canonical import digest_of
from matrixgen.errors import ManifestUnreadable, PlanInvalid
from matrixgen.files import write_atomically
from matrixgen.leg import Plan
from matrixgen.source import parse, read_text

if TYPE_CHECKING:
    from matrixgen.source import Document


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The JSON object of plan.json, with its digest."""
    body = plan.body()
    return {**body, "digest": digest_of(body)}


def plan_text(plan: Plan) -> str:
    """The text of plan.json: readable, one leg a line, ASCII, and the same bytes for the same plan."""
    return "".join(plan.text())


def write_plan(plan: Plan, path: Path | str) -> None:
    """Write plan.json, whole or not at all. Raises CannotWrite."""
    write_atomically(Path(path), plan.text())


def read_plan(path: Path | str) -> Plan:
    """Read plan.json.

    Raises PlanInvalid when it cannot be read, does not match its schema, or does not have the digest that it states.
    """
    path = Path(path)
    document = _document(path)
    findings = list(document.findings) or schema.check(document, schema.load_schema(schema.packaged_root(), "plan"))
    if findings:
        first = findings[0]
        raise PlanInvalid(
            f"plan {path}, line {first.line}, {first.pointer or 'the whole file'}: {first.message} ({first.fix}). "
            f"{len(findings)} finding(s) in all; write it anew with `matrixgen plan`"
        )
    plan = Plan.from_json(document.data)
    if plan.digest != document.data["digest"]:
        raise PlanInvalid(
            f"plan {path} was changed after it was written: it states {document.data['digest']}, "
            f"and its content has {plan.digest}; write it anew with `matrixgen plan`"
        )
    return plan


def _document(path: Path) -> Document:
    try:
        return parse(path.name, read_text(path))
    except ManifestUnreadable as error:
        raise PlanInvalid(f"plan: {error.problem}; write one with `matrixgen plan -o {path.name}`") from None
