"""The items of a Rust file that have a C layout, and those that types in them may refer to.

Types are kept as tokens; `agent.build.rust.layout` gives them a meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agent.build.rust.tokens import Token, tokens_of
from agent.errors import RustUnsupported

_OPEN = {"(": ")", "[": "]", "{": "}"}
_HARMLESS = frozenset(
    {"derive", "doc", "allow", "deprecated", "must_use", "non_exhaustive", "default", "serde", "expect"}
)


@dataclass(frozen=True, kw_only=True)
class Member:
    """A field: its name and the tokens of its type."""

    name: str
    type: tuple[Token, ...]
    line: int


@dataclass(frozen=True, kw_only=True)
class Item:
    """A struct, union, enum or alias.

    Attributes:
        kind: struct, union, enum or alias.
        name: its name.
        file, line: where it is declared.
        reprs: words of its `repr`.
        members: fields of a struct or union; the target of an alias is its only member.
        trouble: why it has no layout that is certain; empty if it may have one.
    """

    kind: str
    name: str
    file: str
    line: int
    reprs: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    trouble: str = ""


@dataclass
class Scope:
    """All items of some files; `constants` are the tokens of their values."""

    items: dict[str, Item] = field(default_factory=dict)
    constants: dict[str, tuple[Token, ...]] = field(default_factory=dict)

    def add(self, item: Item) -> None:
        """Add an item.

        A name with two declarations (of different modules, or chosen by cfg) has no layout that is certain.
        """
        known = self.items.get(item.name)
        if known is not None:
            where = f"{known.file}:{known.line}"
            item = Item(
                kind=item.kind,
                name=item.name,
                file=item.file,
                line=item.line,
                reprs=item.reprs or known.reprs,
                trouble=f"{item.name} is declared twice, here and at {where}",
            )
        self.items[item.name] = item


def read_items(source: str, file: str, scope: Scope) -> None:
    """Add the items of `source` to `scope`.

    Raises:
        RustUnsupported: the text is not Rust.
    """
    _Reader(tokens_of(source, file), file, scope).read()


class _Reader:
    def __init__(self, tokens: Sequence[Token], file: str, scope: Scope) -> None:
        self._tokens = tokens
        self._file = file
        self._scope = scope
        self._place = 0

    def read(self) -> None:
        attributes: list[tuple[Token, ...]] = []
        while token := self._peek():
            if token.text == "#" and self._text(1) == "[":
                self._place += 1
                attributes.append(self._group())
            elif token.text == "pub":
                self._skip_visibility()
            elif token.text in ("struct", "enum") or (token.text == "union" and self._kind(1) == "name"):
                self._type(token, attributes)
                attributes = []
            elif token.text == "type":
                self._alias(token, attributes)
                attributes = []
            elif token.text == "const":
                self._constant()
                attributes = []
            elif token.text in ("fn", "impl", "trait"):
                # types in there are local, or associated ones that mean something else for each type
                self._skip_body()
                attributes = []
            else:
                if any(words[0].text == "repr" for words in attributes if words):
                    # a repr belongs to a type; what stands here is a macro or something newer than this reader
                    self._place += 1
                    self._scope.add(self._broken(token, f"repr on {token.text!r}, which is no struct, union or enum"))
                else:
                    self._place += 1
                attributes = []

    def _type(self, keyword: Token, attributes: Sequence[tuple[Token, ...]]) -> None:
        reprs = tuple(
            t.text
            for words in attributes
            if words and words[0].text == "repr"
            for t in words[1:]
            if t.text not in "(),"
        )
        hidden = any(t.text == "repr" for words in attributes if words and words[0].text != "repr" for t in words)
        name = self._peek(1)
        self._place += 2
        if name is None or name.kind != "name":
            if reprs:
                self._scope.add(self._broken(keyword, f"{keyword.text} without a plain name (inside a macro?)"))
            return
        trouble = "its repr is chosen by cfg_attr" if hidden else _attribute_trouble(attributes)
        trouble = trouble or self._skip_parameters()
        members: tuple[Member, ...] = ()
        try:
            if keyword.text == "enum":
                _require_plain_variants(self._group(), in_c="C" in reprs)
            elif self._text() == "{":
                members = tuple(_named(self._group()))
            elif self._text() == "(":
                members = tuple(_numbered(self._group()))
        except _Trouble as error:
            trouble = trouble or str(error)
        self._scope.add(
            Item(
                kind=keyword.text,
                name=name.text,
                file=self._file,
                line=keyword.line,
                reprs=reprs or (("C",) if hidden else ()),
                members=members,
                trouble=trouble,
            )
        )

    def _skip_parameters(self) -> str:
        """Skip generics and a where clause; say what was there."""
        trouble = ""
        if self._text() in ("<", "where"):
            trouble = "it is generic" if self._text() == "<" else "it has a where clause"
            while (token := self._peek()) and token.text not in "{(;":
                self._place += 1
        return trouble

    def _alias(self, keyword: Token, attributes: Sequence[tuple[Token, ...]]) -> None:
        name = self._peek(1)
        self._place += 2
        words = self._until(";")
        if name is None or name.kind != "name" or not words:
            return
        trouble = _attribute_trouble(attributes) or ("it is generic" if words[0].text != "=" else "")
        member = Member(name=name.text, type=words[1:], line=keyword.line)
        self._scope.add(
            Item(kind="alias", name=name.text, file=self._file, line=keyword.line, members=(member,), trouble=trouble)
        )

    def _constant(self) -> None:
        name = self._peek(1)
        self._place += 1
        if name is None or name.kind != "name" or self._text(1) != ":":
            return  # `*const T`, `const fn`, `const { }`
        words = self._until(";")
        signs = [t.text for t in words]
        if "=" in signs:
            self._scope.constants[name.text] = words[signs.index("=") + 1 :]

    def _skip_body(self) -> None:
        while (token := self._peek()) and token.text not in "{;":
            if token.text in _OPEN:
                self._group()
            else:
                self._place += 1
        if self._text() == "{":
            self._group()

    def _skip_visibility(self) -> None:
        self._place += 1
        if self._text() == "(" and self._text(1) in ("crate", "super", "self", "in"):
            self._group()

    def _group(self) -> tuple[Token, ...]:
        """The tokens inside of the bracket that opens here; moves behind it."""
        words = _inside(self._tokens, self._place)
        self._place += len(words) + 2
        return words

    def _until(self, sign: str) -> tuple[Token, ...]:
        start = self._place
        while (token := self._peek()) and token.text != sign:
            if token.text in _OPEN:
                self._group()
            else:
                self._place += 1
        return tuple(self._tokens[start : self._place])

    def _peek(self, ahead: int = 0) -> Token | None:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else None

    def _text(self, ahead: int = 0) -> str:
        token = self._peek(ahead)
        return token.text if token else ""

    def _kind(self, ahead: int) -> str:
        token = self._peek(ahead)
        return token.kind if token else ""

    def _broken(self, token: Token, trouble: str) -> Item:
        return Item(
            kind="struct",
            name=f"{token.text}@{token.line}",
            file=self._file,
            line=token.line,
            reprs=("C",),
            trouble=trouble,
        )


class _Trouble(Exception):
    """A member has something that makes the layout uncertain."""


def _require_plain_variants(words: Sequence[Token], *, in_c: bool) -> None:
    variants = [_without_attributes(variant) for variant in _split(words, angles=False)]
    if not variants:
        raise _Trouble("it has no variants")
    if any(token.text in "({" for variant in variants for token in variant[:2]):
        raise _Trouble("its variants carry data")
    if in_c:
        _require_int(variants)


def _require_int(variants: Sequence[Sequence[Token]]) -> None:
    """Check that an enum without a width of its own is one of four bytes, as C's is: larger values make it wider."""
    values, value = [], -1
    for variant in variants:
        text = "".join(token.text for token in variant[2:])
        value = _discriminant(text) if text else value + 1
        values.append(value)
    if min(values) < -(2**31) or max(values) >= (2**31 if min(values) < 0 else 2**32):
        raise _Trouble("a discriminant does not fit into four bytes, so its size is not that of a C enum")


def _discriminant(text: str) -> int:
    found = re.fullmatch(r"(-?)([0-9][0-9a-fA-Fxob_]*?)(?:[iu](?:8|16|32|64|size))?(?:<<([0-9]{1,2}))?", text)
    try:
        if found:
            return int(found[1] + found[2].replace("_", ""), 0) << int(found[3] or 0)
    except ValueError:
        pass
    raise _Trouble(f"the discriminant {text!r}: only numbers are evaluated")


def _attribute_trouble(attributes: Sequence[tuple[Token, ...]]) -> str:
    for words in attributes:
        if words and words[0].text not in _HARMLESS | {"repr"}:
            return f"it carries the attribute {words[0].text}"
    return ""


def _inside(tokens: Sequence[Token], opening: int) -> tuple[Token, ...]:
    expected: list[str] = []
    for place in range(opening, len(tokens)):
        text = tokens[place].text
        if text in _OPEN:
            expected.append(_OPEN[text])
        elif expected and text == expected[-1]:
            expected.pop()
            if not expected:
                return tuple(tokens[opening + 1 : place])
    line = tokens[opening].line if opening < len(tokens) else 0
    raise RustUnsupported(f"line {line}: a bracket is not closed: give a file that rustc accepts")


def _split(words: Sequence[Token], *, angles: bool = True) -> list[list[Token]]:
    """Split at commas outside of all brackets; `<` and `>` are brackets in types, and signs in values."""
    opening, closing = ("([{<", ")]}>") if angles else ("([{", ")]}")
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in words:
        depth += (token.text in opening) - (token.text in closing)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _without_attributes(words: Sequence[Token]) -> list[Token]:
    rest = list(words)
    while len(rest) > 1 and rest[0].text == "#":
        inner = _inside(rest, 1)
        if inner and inner[0].text not in _HARMLESS:
            raise _Trouble(f"a member carries the attribute {inner[0].text}")
        rest = rest[len(inner) + 3 :]
    if rest and rest[0].text == "pub":
        rest = rest[1:]
        if len(rest) > 1 and rest[0].text == "(" and rest[1].text in ("crate", "super", "self", "in"):
            rest = rest[len(_inside(rest, 0)) + 2 :]
    return rest


def _named(words: Sequence[Token]) -> Iterator[Member]:
    for part in _split(words):
        rest = _without_attributes(part)
        if len(rest) < 3 or rest[0].kind != "name" or rest[1].text != ":":
            raise _Trouble(f"a member is not understood: {' '.join(t.text for t in rest)!r}")
        yield Member(name=rest[0].text, type=tuple(rest[2:]), line=rest[0].line)


def _numbered(words: Sequence[Token]) -> Iterator[Member]:
    for place, part in enumerate(_split(words)):
        rest = _without_attributes(part)
        yield Member(name=f"_{place}", type=tuple(rest), line=part[0].line)
