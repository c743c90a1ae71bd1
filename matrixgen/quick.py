"""A fast yes for documents that match their JSON Schema.

Loading jsonschema takes longer than all other work of `matrixgen emit`, and nearly every document is good. So this
module compiles a schema into closures that answer True only when the document surely matches. False means "ask
jsonschema": it stays the authority for every no, and for every keyword that is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]

_ANNOTATIONS = frozenset({"$schema", "$defs", "title", "description"})
_TYPES: dict[str, Check] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_SIZES: dict[str, Callable[[Any, Any], bool]] = {
    "maxLength": lambda value, limit: len(value) <= limit,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "minProperties": lambda value, limit: len(value) >= limit,
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
}


def strict_pattern(pattern: str) -> str:
    """A schema pattern for Python's re: `$` is the end of the text, and never before a last line feed."""
    return pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern


class _UnknownKeywordError(Exception):
    """The schema uses a keyword that is not known here."""


def compile_schema(schema: Mapping[str, Any]) -> Check:
    """A check that answers True only for documents that match `schema`; one that never does for unknown keywords."""
    try:
        return _Compiler(schema.get("$defs", {})).node(schema)
    except _UnknownKeywordError:
        return lambda _value: False


def _chain(first: Check, second: Check | None = None, third: Check | None = None) -> Check:
    """One to three checks in their order."""
    if second is None:
        return first
    if third is None:
        return lambda value: first(value) and second(value)
    return lambda value: first(value) and second(value) and third(value)


class _Compiler:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._compiled: dict[str, Check] = {}

    def node(self, schema: Mapping[str, Any]) -> Check:
        """One schema object. Its checks run in order, `type` first, so later ones see the right type only."""
        keywords = sorted(schema.keys() - _ANNOTATIONS, key=lambda keyword: (keyword != "type", keyword))
        checks = [check for keyword in keywords if (check := self._keyword(keyword, schema[keyword], schema))]
        if len(checks) <= 3:  # nearly all are; a loop would cost as much as the checks
            return _chain(*checks)
        frozen = tuple(checks)

        def every(value: Any) -> bool:
            for check in frozen:  # noqa: SIM110 - a generator expression would halve the speed
                if not check(value):
                    return False
            return True

        return every

    def _keyword(self, keyword: str, argument: Any, schema: Mapping[str, Any]) -> Check | None:
        if keyword == "$ref":
            return self._reference(argument)
        if keyword == "anyOf":
            options = tuple(self.node(option) for option in argument)
            if len(options) == 2:
                first, second = options
                return lambda value: first(value) or second(value)
            return lambda value: any(option(value) for option in options)
        kind = schema.get("type")
        if not isinstance(kind, str) or kind not in _TYPES:  # without one, a check could meet any type
            raise _UnknownKeywordError(keyword)
        if keyword == "type":
            return _TYPES[kind]
        if keyword in ("enum", "const"):
            allowed = argument if keyword == "enum" else [argument]
            return lambda value: value in allowed
        if keyword in ("properties", "additionalProperties"):
            if keyword == "additionalProperties" and "properties" in schema:
                return None
            return self._object(schema.get("properties", {}), schema.get("additionalProperties"))
        if keyword in _SIZES:
            size = _SIZES[keyword]
            return lambda value: size(value, argument)
        return self._content(keyword, argument)

    def _content(self, keyword: str, argument: Any) -> Check:
        match keyword:
            case "pattern":
                matches = re.compile(strict_pattern(argument)).search
                return lambda value: matches(value) is not None
            case "uniqueItems":
                return lambda value: len({repr(item) for item in value}) == len(value)
            case "items":
                item = self.node(argument)
                return lambda value: all(map(item, value))
            case "propertyNames":
                name = self.node({"type": "string", **argument})
                return lambda value: all(map(name, value))
            case "required":
                needed = frozenset(argument)
                return lambda value: needed <= value.keys()
        raise _UnknownKeywordError(keyword)

    def _object(self, properties: Mapping[str, Any], additional: Any) -> Check:
        known = {name: self.node(schema) for name, schema in properties.items()}
        if additional is False:
            other: Check = lambda _value: False  # noqa: E731
        elif isinstance(additional, dict):
            other = self.node(additional)
        else:
            raise _UnknownKeywordError("additionalProperties")

        def check(value: Any) -> bool:
            for name, item in value.items():  # noqa: SIM110 - see above
                if not known.get(name, other)(item):
                    return False
            return True

        return check

    def _reference(self, pointer: str) -> Check:
        name = pointer.removeprefix("#/$defs/")
        if name not in self._compiled:
            if name not in self._definitions:
                raise _UnknownKeywordError(pointer)
            self._compiled[name] = self.node(self._definitions[name])
        return self._compiled[name]
