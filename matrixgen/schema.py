"""Check a document against its JSON Schema, and say everything that is wrong with it.

The schemas in `schema/` of the manifest folder are the only description of the files. A good document is accepted by
`matrixgen.quick`; for any other, jsonschema names all errors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrixgen.findings import Finding
from matrixgen.quick import compile_schema, strict_pattern
from matrixgen.source import escape, too_deep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jsonschema.protocols import Validator

    from matrixgen.source import Document

NAMES = ("families", "pin", "batteries", "runners", "caches", "quarantine", "plan")


def packaged_root() -> Path:
    """The manifest folder that came with this package: `_manifests` in a wheel, `../manifests` in a checkout.

    Its schemas also describe other manifest folders: a fork must not bring a schema that lets more through.
    """
    package = Path(__file__).parent
    bundled = package / "_manifests"
    return bundled if bundled.is_dir() else package.parent / "manifests"


def load_schema(root: Path, name: str) -> dict[str, Any]:
    """The schema of `<name>.json`, from the `schema` folder of `root`."""
    schema: dict[str, Any] = json.loads((root / "schema" / f"{name}.schema.json").read_text(encoding="utf-8"))
    return schema


def check(document: Document, schema: Mapping[str, Any]) -> list[Finding]:
    """All places where `document` does not match `schema`, in the order of the text; empty when it matches."""
    if compile_schema(schema)(document.data):
        return []
    if deep := too_deep(document.name, document.text):
        return deep
    lines = document.lines()
    findings = []
    for error in _errors(schema, document.data):
        pointer = "".join(f"/{escape(str(part))}" for part in error.absolute_path)
        message, fix = _explain(error)
        findings.append(
            Finding(
                id="MG010",
                severity="error",
                file=document.name,
                pointer=pointer,
                line=document.line(pointer, lines),
                message=message,
                fix=fix,
            )
        )
    return sorted(findings, key=lambda f: (f.line, f.pointer, f.message))


def _errors(schema: Mapping[str, Any], data: Any) -> Iterator[Any]:
    """jsonschema's errors, with `anyOf` narrowed to the alternative that was meant."""
    for error in validator(schema).iter_errors(data):
        if error.validator == "anyOf" and error.context:
            meant = [sub for sub in error.context if sub.validator != "type"]
            yield from meant or [error]
        else:
            yield error


def validator(schema: Mapping[str, Any]) -> Validator:
    """A draft 2020-12 validator whose `$` matches the end of the text only, never before a last line feed."""
    import re

    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def pattern(_validator: Any, argument: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not re.search(strict_pattern(argument), instance):
            yield ValidationError(f"{instance!r} does not match {argument!r}")

    strict: type[Validator] = extend(Draft202012Validator, {"pattern": pattern})  # type: ignore[no-untyped-call]
    return strict(schema)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _explain(error: Any) -> tuple[str, str]:
    """(what is wrong, what would be right) of one jsonschema error."""
    value, wanted = error.instance, error.validator_value
    match error.validator:
        case "required":
            missing = [name for name in wanted if name not in value]
            return f"missing: {', '.join(missing)}", "add it; docs/manifest.md has a row to copy"
        case "additionalProperties" if wanted is False:
            extra = [name for name in value if name not in error.schema.get("properties", {})]
            return f"unknown: {_short(extra)}", f"one of {', '.join(error.schema.get('properties', {}))}"
        case "type":
            return f"{_short(value)} is {_json_type(value)}", f"must be {wanted}"
        case "enum":
            return f"{_short(value)} is not known", f"one of {', '.join(map(str, wanted))}"
        case "const":
            return f"{_short(value)} is not {wanted}", f"write {wanted}"
        case "pattern":
            meant = error.schema.get("description", "")
            fix = f"{meant.rstrip('.')}; it must match {wanted}" if meant else f"must match {wanted}"
            return f"{_short(value)} has characters that are not allowed, or the wrong form", fix
        case "anyOf":
            kinds = " or ".join(
                str(option.get("type", option.get("$ref", "?"))).removeprefix("#/$defs/") for option in wanted
            )
            return f"{_short(value)} is {_json_type(value)}", f"must be {kinds}"
        case "maxLength" | "maxItems" | "maximum":
            return f"{_short(value)} is too long or too large", f"at most {wanted}"
        case "minLength" | "minItems" | "minimum" | "minProperties" | "exclusiveMinimum":
            return f"{_short(value)} is too short or too small", f"at least {wanted}"
        case "uniqueItems":
            return f"{_short(value)} holds the same item twice", "keep one of them"
    return f"{_short(value)} does not fit", f"see {error.validator} in the schema"


def _json_type(value: Any) -> str:
    for kind, name in (
        (bool, "a boolean"),
        (dict, "an object"),
        (list, "an array"),
        (str, "a string"),
        (int, "an integer"),
        (float, "a number"),
    ):
        if isinstance(value, kind):
            return name
    return "null"
