"""Names of struct fields in preprocessed C.

Only names are read here; sizes and offsets come from the compiler, and `Struct.unexplained` shows a name that was missed. A
member that this reader does not know is an error, never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import NamedTuple

from agent.errors import HeadersUnreadable

_HEAD = re.compile(
    r"(?P<typedef>\btypedef\s+)?\b(?P<word>struct|union)\b(?:\s+__attribute__\s*\(\(.*?\)\))?\s*(?P<tag>[A-Za-z_]\w*)?\s*\{"
)
_ALIAS = re.compile(r"\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?([A-Za-z_]\w*)\s*;")
_ATTRIBUTE = re.compile(r"\b(?:__attribute__|__attribute|_Alignas|__asm__)\s*(?=\()")
_ANONYMOUS = re.compile(r"\}\s*;")
_FUNCTION = re.compile(r"\(\s*\*\s*(?:const\s+)?([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*\)\s*\(")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_AGGREGATE = re.compile(r"^(?:const\s+|volatile\s+)*(struct|union|enum)\b\s*([A-Za-z_]\w*)?\s*\{")


class CStruct(NamedTuple):
    """A struct or union of C.

    Attributes:
        spelling: how its type is written.
        fields: the names that can be used on it, in their order.
        flat: False if some are of an anonymous member, which may end in padding of its own.
    """

    spelling: str
    fields: tuple[str, ...]
    flat: bool


def struct_fields(source: str, wanted: Container[str]) -> dict[str, CStruct]:
    """The structs and unions in `wanted` with a body in `source`, by tag and by the name of a typedef.

    The members of an anonymous struct or union count as members of the struct around it.

    Raises:
        HeadersUnreadable: a member could not be understood.
    """
    found: dict[str, CStruct] = {}
    for match in _HEAD.finditer(source):
        end = _closing(source, match.end() - 1)
        alias = _ALIAS.match(source, end + 1) if match["typedef"] else None
        name = match["tag"] or (alias[1] if alias else "")
        # one without a name is read with the struct around it
        if name not in wanted and not (alias and alias[1] in wanted):
            continue
        body = source[match.end() : end]
        fields, flat = tuple(_members(name, body)), not _ANONYMOUS.search(body)
        if match["tag"] in wanted:
            found[name] = CStruct(f"{match['word']} {name}", fields, flat)
        if alias and alias[1] in wanted:
            found[alias[1]] = CStruct(alias[1], fields, flat)
    return found


def _members(struct: str, body: str) -> Iterator[str]:
    for text in _split(body, ";"):
        declaration = " ".join(_without_attributes(text).split())
        if not declaration:
            continue
        if aggregate := _AGGREGATE.match(declaration):
            end = _closing(declaration, aggregate.end() - 1)
            inner, rest = declaration[aggregate.end() : end], declaration[end + 1 :].strip()
            if rest:
                yield from (_declared(struct, part) for part in _split(rest, ","))
            elif aggregate[1] != "enum":
                yield from _members(struct, inner)
            continue
        yield from (_declared(struct, part) for part in _split(declaration, ","))


def _declared(struct: str, text: str) -> str:
    if match := _FUNCTION.search(text):
        return match[1]
    if ":" in text:
        raise HeadersUnreadable(f"struct {struct} has the bit field {text.strip()!r}: its place has no name in C")
    if match := _NAME.search(text.strip()):
        return match[1]
    raise HeadersUnreadable(f"struct {struct} has a member that is not understood: {text.strip()!r}")


def _split(text: str, separator: str) -> list[str]:
    """Split outside of brackets of any kind."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        if letter in "({[":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        elif letter == separator and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def _without_attributes(text: str) -> str:
    while match := _ATTRIBUTE.search(text):
        text = f"{text[: match.start()]} {text[_closing(text, match.end(), '()') + 1 :]}"
    return text.replace("__extension__", " ")


def _closing(text: str, opening: int, pair: str = "{}") -> int:
    depth = 0
    for place in range(opening, len(text)):
        depth += {pair[0]: 1, pair[1]: -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise HeadersUnreadable("a struct of the headers is not closed: the headers are cut short")
