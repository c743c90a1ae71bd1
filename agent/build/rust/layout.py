"""Size, alignment and offsets of `#[repr(C)]` types by C's rules. What is not certain is refused by name, never guessed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.binding.layout import Field, Layout, Struct, machine_name
from agent.build.rust.items import Item, Member, Scope
from agent.build.rust.tokens import Token

_WORD = ctypes.sizeof(ctypes.c_void_p)
_LONG = ctypes.sizeof(ctypes.c_long)


def _scalar(size: int, kind: str, spelling: str) -> tuple[int, int, str, str]:
    return size, min(size, _align_limit(size)), kind, spelling


def _align_limit(size: int) -> int:
    # 32-bit x86 aligns eight-byte scalars to four; the C compiler of this machine is asked through ctypes
    return ctypes.alignment(ctypes.c_int64) if size == ctypes.sizeof(ctypes.c_int64) else size


# Rust name -> (size, alignment, kind, C spelling)
SCALARS = {
    **{
        f"{sign}{8 * n}": _scalar(n, "int", f"{word}{8 * n}_t")
        for n in (1, 2, 4, 8)
        for sign, word in (("u", "uint"), ("i", "int"))
    },
    "usize": _scalar(_WORD, "int", "size_t"),
    "isize": _scalar(_WORD, "int", "ptrdiff_t"),
    "size_t": _scalar(_WORD, "int", "size_t"),
    "ssize_t": _scalar(_WORD, "int", "ptrdiff_t"),
    "f32": _scalar(4, "float", "float"),
    "f64": _scalar(8, "float", "double"),
    "bool": _scalar(1, "bool", "bool"),
    "c_char": _scalar(1, "int", "char"),
    "c_schar": _scalar(1, "int", "signed char"),
    "c_uchar": _scalar(1, "int", "unsigned char"),
    "c_short": _scalar(2, "int", "short"),
    "c_ushort": _scalar(2, "int", "unsigned short"),
    "c_int": _scalar(4, "int", "int"),
    "c_uint": _scalar(4, "int", "unsigned int"),
    "c_long": _scalar(_LONG, "int", "long"),
    "c_ulong": _scalar(_LONG, "int", "unsigned long"),
    "c_longlong": _scalar(8, "int", "long long"),
    "c_ulonglong": _scalar(8, "int", "unsigned long long"),
    "c_float": _scalar(4, "float", "float"),
    "c_double": _scalar(8, "float", "double"),
}
_ENUM_REPRS = {name: SCALARS[name] for name in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "usize", "isize")}
_LONGEST_ARRAY = 2**32
_C_WORDS = frozenset(
    {
        "auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
        "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof",
        "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while",
    }
)  # fmt: skip
_NAMESPACES = frozenset({"std", "core", "libc", "ffi", "os", "raw", "crate", "super", "self"})


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A type with its layout: bytes, kind, and how C declares a member `{}` of it."""

    size: int
    align: int
    kind: str
    declarator: str
    uses: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A construct that is not laid out."""

    item: Item
    line: int
    words: str


@dataclass(frozen=True, kw_only=True)
class RustLayout:
    """What a set of Rust files declares.

    Attributes:
        layout: structs and unions with a layout, each after those that it holds.
        declarations: C declaration of each, by name.
        unions: names of those that are unions.
        opaque: types without size, which only pointers may point to.
        problems: types that were refused, each with its reason.
    """

    layout: Layout
    declarations: dict[str, tuple[str, ...]]
    unions: frozenset[str]
    opaque: tuple[str, ...]
    problems: tuple[Problem, ...]


class _Refused(Exception):
    def __init__(self, words: str, line: int = 0) -> None:
        super().__init__(words)
        self.words = words
        self.line = line


def lay_out(scope: Scope, source: str) -> RustLayout:
    """Lay out every `#[repr(C)]` struct and union of `scope`."""
    placer = _Placer(scope)
    problems = []
    for item in scope.items.values():
        if item.kind not in ("struct", "union") or "C" not in item.reprs:
            continue
        try:
            placer.place(item)
        except _Refused as error:
            problems.append(Problem(item=item, line=error.line or item.line, words=error.words))
    return RustLayout(
        layout=Layout(structs=placer.structs, source=source, machine=machine_name()),
        declarations=placer.declarations,
        unions=frozenset(name for name in placer.structs if scope.items[name].kind == "union"),
        opaque=tuple(sorted(placer.opaque)),
        problems=tuple(problems),
    )


@dataclass
class _Placer:
    scope: Scope
    structs: dict[str, Struct] = field(default_factory=dict)
    declarations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    opaque: set[str] = field(default_factory=set)
    _open: list[str] = field(default_factory=list)

    def place(self, item: Item) -> Struct | None:
        """The layout of an item; None if it is opaque."""
        if item.name in self.structs or item.name in self.opaque:
            return self.structs.get(item.name)
        if item.trouble:
            raise _Refused(item.trouble, item.line)
        if item.name in self._open:
            raise _Refused(f"{item.name} holds itself", item.line)
        for word in (item.name, *(member.name for member in item.members)):
            if word in _C_WORDS:
                raise _Refused(f"{word} is a word of C, so no header has a type or member of that name", item.line)
        if strange := [word for word in item.reprs if word != "C"]:
            raise _Refused(f"repr(C, {' '.join(strange)}): only plain repr(C) is laid out", item.line)
        self._open.append(item.name)
        try:
            members = [(member, placed) for member in item.members if (placed := self._member(member)) is not None]
        finally:
            self._open.pop()
        if not members:
            self.opaque.add(item.name)
            return None
        if len(members) != len(item.members):
            raise _Refused("a member without size stands beside others: C has no such member", item.line)
        struct = _arrange(item, members)
        self.structs[item.name] = struct
        self.declarations[item.name] = tuple(placed.declarator.format(member.name) for member, placed in members)
        return struct

    def _member(self, member: Member) -> Placed | None:
        try:
            return self._type(member.type)
        except _Refused as error:
            raise _Refused(f"field {member.name}: {error.words}", error.line or member.line) from None

    def _type(self, words: Sequence[Token]) -> Placed | None:
        text = [token.text for token in words]
        if not words:
            raise _Refused("a type is missing")
        if text == ["(", ")"] or "PhantomData" in text or "PhantomPinned" in text:
            return None
        if text[0] == "*":
            return self._pointer(words)
        if text[0] == "&":
            raise _Refused("a reference: use a raw pointer where C is on the other side")
        if text[0] == "[":
            return self._array(words)
        if text[0] in ("fn", "unsafe", "extern"):
            return self._function(words)
        name, arguments = _path(words)
        if arguments is not None:
            return self._generic(name, arguments, words[0].line)
        return self._named(name, words[0].line)

    def _pointer(self, words: Sequence[Token]) -> Placed:
        text = [token.text for token in words]
        if len(text) < 3 or text[1] not in ("const", "mut"):
            raise _Refused(f"the type {' '.join(text)!r} is not understood")
        target = text[2:]
        if target[0] in ("dyn", "str", "impl") or (target[0] == "[" and ";" not in target):
            raise _Refused(f"a pointer to {' '.join(target)}: it is two words wide, and C has no such pointer")
        if target[-1:] == ["str"]:
            raise _Refused("a pointer to str: it is two words wide, and C has no such pointer")
        return _POINTER

    def _array(self, words: Sequence[Token]) -> Placed | None:
        inner = words[1:-1]
        depth, cut = 0, -1
        for place, token in enumerate(inner):
            depth += {"[": 1, "]": -1, "(": 1, ")": -1}.get(token.text, 0)
            if token.text == ";" and depth == 0:
                cut = place
        if cut < 0 or words[-1].text != "]":
            raise _Refused("a slice has no size of its own")
        count = self._count(inner[cut + 1 :])
        element = self._type(inner[:cut])
        if element is None or count == 0:
            return None
        return Placed(
            size=count * element.size,
            align=element.align,
            kind="other",
            declarator=element.declarator.replace("{}", f"{{}}[{count}]", 1),
        )

    def _count(self, words: Sequence[Token], depth: int = 0) -> int:
        text = "".join(token.text for token in words)
        if len(words) == 1 and words[0].kind == "name" and words[0].text in self.scope.constants and depth < 8:
            return self._count(self.scope.constants[words[0].text], depth + 1)
        number = text.replace("_", "").removesuffix("usize").removesuffix("u32")
        try:
            count = int(number, 0)
        except ValueError:
            raise _Refused(f"the length {text!r}: only numbers and constants of these files are evaluated") from None
        if not 0 <= count <= _LONGEST_ARRAY:
            raise _Refused(f"the length {text!r} is out of range")
        return count

    def _function(self, words: Sequence[Token]) -> Placed:
        text = [token.text for token in words]
        if "fn" not in text or "extern" not in text[: text.index("fn")]:
            raise _Refused('a function pointer without extern "C": C cannot call it')
        return _FUNCTION

    def _generic(self, name: str, arguments: Sequence[Token], line: int) -> Placed | None:
        first = arguments[0].text if arguments else ""
        if name == "Option" and first in ("fn", "unsafe", "extern"):
            return self._function(arguments)
        if name == "Option" and arguments:
            inner, deeper = _path(arguments)
            if inner == "NonNull" and deeper is not None:
                return self._generic(inner, deeper, line)
            target = self.scope.items.get(inner)
            if target is not None and target.kind == "alias":
                words = target.members[0].type
                if words and words[0].text in ("fn", "unsafe", "extern"):
                    return self._function(words)
        if name == "NonNull" and arguments:
            if first in ("dyn", "str", "[") and ";" not in [token.text for token in arguments]:
                raise _Refused(f"NonNull<{first} ...> is two words wide")
            return _POINTER
        if name in ("MaybeUninit", "ManuallyDrop", "UnsafeCell", "Cell") and arguments:
            return self._type(arguments)
        shown = "".join(token.text for token in arguments)
        raise _Refused(f"{name}<{shown}>: only Option of a function pointer or of NonNull has a layout in C")

    def _named(self, name: str, line: int) -> Placed | None:
        item = self.scope.items.get(name)
        if item is None:
            if name in SCALARS:
                size, align, kind, spelling = SCALARS[name]
                return Placed(size=size, align=align, kind=kind, declarator=f"{spelling} {{}}")
            raise _Refused(f"the type {name} is not in these files: give the file that declares it with --rust", line)
        if item.trouble:
            raise _Refused(f"{name}: {item.trouble}", item.line)
        if item.kind == "alias":
            if name in self._open:
                raise _Refused(f"{name} is an alias of itself", item.line)
            self._open.append(name)
            try:
                return self._type(item.members[0].type)
            finally:
                self._open.pop()
        if item.kind == "enum":
            return _enum(item)
        if item.reprs == ("transparent",) and len(item.members) == 1:
            return self._type(item.members[0].type)
        if "C" not in item.reprs:
            raise _Refused(f"{name} is not repr(C), so Rust may lay it out as it likes", item.line)
        struct = self.place(item)
        if struct is None:
            raise _Refused(f"{name} has no size and is held by value", item.line)
        return Placed(size=struct.size, align=struct.align, kind="other", declarator=f"{item.kind} {name} {{}}")


_POINTER = Placed(size=_WORD, align=_WORD, kind="pointer", declarator="void *{}")
_FUNCTION = Placed(size=_WORD, align=_WORD, kind="pointer", declarator="void (*{})(void)")


def _enum(item: Item) -> Placed:
    if item.reprs == ("C",):
        # as C has it: int-sized on every target that this project runs on, asserted when the mirror is compiled
        size, align, kind, spelling = SCALARS["c_int"]
    elif len(item.reprs) == 1 and item.reprs[0] in _ENUM_REPRS:
        size, align, kind, spelling = _ENUM_REPRS[item.reprs[0]]
    else:
        raise _Refused(f"the enum {item.name} has no repr that fixes its size", item.line)
    return Placed(size=size, align=align, kind=kind, declarator=f"{spelling} {{}}")


def _arrange(item: Item, members: Sequence[tuple[Member, Placed]]) -> Struct:
    fields, end, align = [], 0, 1
    for member, placed in members:
        start = 0 if item.kind == "union" else -(-end // placed.align) * placed.align
        fields.append(Field(name=member.name, offset=start, size=placed.size, align=placed.align, kind=placed.kind))
        end = max(end, start + placed.size)
        align = max(align, placed.align)
    return Struct(name=item.name, size=-(-end // align) * align, align=align, fields=tuple(fields))


def _path(words: Sequence[Token]) -> tuple[str, tuple[Token, ...] | None]:
    """The last name of a path, and the tokens of its arguments if it has any."""
    text = [token.text for token in words]
    cut = text.index("<") if "<" in text else len(text)
    names = [token for token in words[:cut] if token.text != "::"]
    if not names or any(token.kind != "name" for token in names):
        raise _Refused(f"the type {' '.join(text)!r} is not understood")
    if cut == len(text):
        return names[-1].text, None
    if text[-1] != ">":
        raise _Refused(f"the type {' '.join(text)!r} is not understood")
    return names[-1].text, tuple(words[cut + 1 : -1])
