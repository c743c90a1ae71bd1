"""Rust source as tokens, each with its line; comments and the inside of literals are gone."""

from __future__ import annotations

import re
from typing import NamedTuple

from agent.errors import RustUnsupported

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>b?r(?P<hashes>\#*)".*?"(?P=hashes))
  | (?P<string>[bc]?"(?:\\.|[^"\\])*")
  | (?P<char>b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.)|[^'\\])')
  | (?P<lifetime>'[A-Za-z_]\w*)
  | (?P<number>\d[\w]*(?:\.\d[\w]*)?)
  | (?P<name>(?:r\#)?[^\W\d]\w*)
  | (?P<sign>->|::|=>|.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """`kind` is name, number, lifetime, literal or sign."""

    kind: str
    text: str
    line: int


def tokens_of(source: str, file: str) -> list[Token]:
    """All tokens of `source`.

    Raises:
        RustUnsupported: a comment or a literal is not closed.
    """
    found: list[Token] = []
    place, line = 0, 1
    while place < len(source):
        match = _TOKEN.match(source, place)
        if match is None:  # every character is at least a sign
            raise RustUnsupported(f"{file}:{line}: this character cannot be read")
        end = match.end()
        kind = match.lastgroup or ""
        if kind == "block":
            end = _end_of_comment(source, place, file, line)
        elif kind in ("hashes", "raw", "string", "char"):
            found.append(Token("literal", "literal", line))
        elif kind != "space":
            if match[0] == '"':
                raise RustUnsupported(f"{file}:{line}: a string is not closed: give a file that rustc accepts")
            found.append(Token(kind, match[0].removeprefix("r#") if kind == "name" else match[0], line))
        line += source.count("\n", place, end)
        place = end
    return found


def _end_of_comment(source: str, start: int, file: str, line: int) -> int:
    depth, place = 0, start
    while place < len(source):
        pair = source[place : place + 2]
        if pair == "/*":
            depth += 1
        elif pair == "*/":
            depth -= 1
            if depth == 0:
                return place + 2
        place += 2 if pair in ("/*", "*/") else 1
    raise RustUnsupported(f"{file}:{line}: a comment is not closed: give a file that rustc accepts")
