"""A fast yes for documents that match their JSON Schema.

Loading jsonschema takes longer than all other work of `matrixgen emit`, and nearly every document is good. So this
module compiles a schema into closures that answer True only when the document surely matches. False means "ask
jsonschema": it stays the authority for every no, and for every keyword that is not known here.

A value costs one call: each type has a closure that holds all its keywords.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
Schema = Mapping[str, Any]

_ANNOTATIONS = frozenset({"$schema", "$defs", "title", "description"})
_ENDLESS = float("inf")


def strict_pattern(pattern: str) -> str:
    """A schema pattern for Python's re: `$` is the end of the text, and never before a last line feed."""
    return pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern


class _UnknownKeywordError(Exception):
    """The schema uses a keyword, or keywords together, that are not known here."""


def compile_schema(schema: Schema) -> Check:
    """A check that answers True only for documents that match `schema`; one that never does for unknown keywords."""
    try:
        return _Compiler(schema.get("$defs", {})).node(schema)
    except _UnknownKeywordError:
        return lambda _value: False


def _known(schema: Schema, *keywords: str) -> None:
    """Refuse a schema that says more than `keywords`."""
    if extra := schema.keys() - _ANNOTATIONS - {*keywords, "type"}:
        raise _UnknownKeywordError(*extra)


def _text(schema: Schema) -> Check:
    if "enum" in schema:
        _known(schema, "enum")
        allowed = frozenset(schema["enum"])
        return lambda value: type(value) is str and value in allowed
    _known(schema, "pattern", "minLength", "maxLength")
    least, most = schema.get("minLength", 0), schema.get("maxLength", _ENDLESS)
    if "pattern" not in schema:
        return lambda value: type(value) is str and least <= len(value) <= most
    matches = re.compile(strict_pattern(schema["pattern"])).search
    return lambda value: type(value) is str and least <= len(value) <= most and matches(value) is not None


def _number(schema: Schema) -> Check:
    types = (int,) if schema["type"] == "integer" else (int, float)  # type(True) is neither
    if "const" in schema:
        _known(schema, "const")
        only = schema["const"]
        return lambda value: type(value) in types and bool(value == only)
    _known(schema, "minimum", "maximum", "exclusiveMinimum")
    least, most = schema.get("minimum", -_ENDLESS), schema.get("maximum", _ENDLESS)
    below = schema.get("exclusiveMinimum", -_ENDLESS)
    return lambda value: type(value) in types and least <= value <= most and value > below


def _boolean(schema: Schema) -> Check:
    _known(schema)
    return lambda value: type(value) is bool


def _null(schema: Schema) -> Check:
    _known(schema)
    return lambda value: value is None


_PLAIN: Mapping[str, Callable[[Schema], Check]] = {
    "string": _text,
    "integer": _number,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
}


class _Compiler:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._compiled: dict[str, Check] = {}

    def node(self, schema: Schema) -> Check:
        """One schema object."""
        if "$ref" in schema:
            _known(schema, "$ref")
            return self._reference(schema["$ref"])
        if "anyOf" in schema:
            _known(schema, "anyOf")
            options = tuple(self.node(option) for option in schema["anyOf"])
            if len(options) == 2:  # nearly all are; a generator would cost as much as the checks
                first, second = options
                return lambda value: first(value) or second(value)
            return lambda value: any(option(value) for option in options)
        kind = str(schema.get("type"))
        if kind in _PLAIN:
            return _PLAIN[kind](schema)
        if kind == "array":
            return self._array(schema)
        if kind == "object":
            return self._object(schema)
        raise _UnknownKeywordError(kind)

    def _array(self, schema: Schema) -> Check:
        _known(schema, "items", "minItems", "maxItems", "uniqueItems")
        item = self.node(schema["items"])
        least, most = schema.get("minItems", 0), schema.get("maxItems", _ENDLESS)
        unique = schema.get("uniqueItems", False)

        def check(value: Any) -> bool:
            if type(value) is not list or not least <= len(value) <= most or not all(map(item, value)):
                return False
            return not unique or len(set(map(repr, value))) == len(value)

        return check

    def _object(self, schema: Schema) -> Check:
        _known(schema, "properties", "additionalProperties", "propertyNames", "required", "minProperties")
        known = {name: self.node(entry) for name, entry in schema.get("properties", {}).items()}
        other = self._other(schema.get("additionalProperties"))
        names = self.node({"type": "string", **schema["propertyNames"]}) if "propertyNames" in schema else None
        needed, least = frozenset(schema.get("required", ())), schema.get("minProperties", 0)

        def check(value: Any) -> bool:
            if type(value) is not dict or not needed <= value.keys() or len(value) < least:
                return False
            if names is not None and not all(map(names, value)):
                return False
            for name, item in value.items():  # noqa: SIM110 - a generator expression would halve the speed
                if not known.get(name, other)(item):
                    return False
            return True

        return check

    def _other(self, additional: Any) -> Check:
        """The check of values that `properties` does not name."""
        if additional is False:
            return lambda _value: False
        if isinstance(additional, dict):
            return self.node(additional)
        raise _UnknownKeywordError("additionalProperties")

    def _reference(self, pointer: str) -> Check:
        name = pointer.removeprefix("#/$defs/")
        if name not in self._compiled:
            if name not in self._definitions:
                raise _UnknownKeywordError(pointer)
            self._compiled[name] = self.node(self._definitions[name])
        return self._compiled[name]
