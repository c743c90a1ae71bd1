"""The C mirror of Rust types: definitions, static assertions, and the comparison with a header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent.build.assertions import assertions_of, struct_assertions
from agent.build.compare import Comparison, compare_layouts
from agent.build.compiler import Compiled, check_source
from agent.build.findings import Finding
from agent.build.headers import layout_of_headers, structs_of_headers
from agent.build.named_file import read_named
from agent.build.rust.items import Scope, read_items
from agent.build.rust.layout import RustLayout, lay_out
from agent.errors import RustUnsupported

_WHY_REFUSED = "a layout that was guessed would be worse than none: nothing is asserted about this type"


def read_rust(files: Sequence[Path]) -> RustLayout:
    """Lay out the `#[repr(C)]` types of `files`, which may refer to each other.

    Raises:
        FileUnreadable: a file cannot be read.
        RustUnsupported: a file is not Rust, or declares no such type.
    """
    scope = Scope()
    for path in files:
        read_items(read_named(path), path.name, scope)
    try:
        found = lay_out(scope, ", ".join(path.name for path in files))
    except RecursionError:
        raise RustUnsupported(
            "types are nested deeper than this reader follows: give only the file that matters"
        ) from None
    if not (found.layout.structs or found.opaque or found.problems):
        raise RustUnsupported(f"{found.layout.source}: no repr(C) struct in these files, so there is nothing to check")
    return found


def choose(found: RustLayout, names: Sequence[str]) -> RustLayout:
    """Only the structs in `names`, with those that they hold.

    Raises:
        RustUnsupported: one of them has no layout; the message says why.
    """
    refused = {problem.item.name: problem for problem in found.problems}
    for name in names:
        if name in refused:
            raise RustUnsupported(f"{refused[name].item.file}:{refused[name].line}: {name}: {refused[name].words}")
        if name not in found.layout.structs:
            known = ", ".join(found.layout.structs) or "none"
            raise RustUnsupported(f"no repr(C) struct {name} with a size in {found.layout.source}; there: {known}")
    wanted = set(names)
    for name in reversed(tuple(found.layout.structs)):  # a struct comes after those that it holds
        if name in wanted:
            wanted |= {word for text in found.declarations[name] for word in text.split()} & found.layout.structs.keys()
    structs = {name: struct for name, struct in found.layout.structs.items() if name in wanted}
    return replace(found, layout=replace(found.layout, structs=structs), problems=())


def mirror_source(found: RustLayout) -> str:
    """The C file: every type as C declares it, then assertions on size, alignment and offsets."""
    lines = [
        f"/* C mirror of the repr(C) types of {found.layout.source}, for {found.layout.machine}. Made by skippy-agent abi. */",
        "#include <stdbool.h>",
        "#include <stddef.h>",
        "#include <stdint.h>",
    ]
    for name, struct in found.layout.structs.items():
        word = "union" if name in found.unions else "struct"
        lines += ["", f"{word} {name} {{", *(f"    {text};" for text in found.declarations[name]), "};"]
        lines += struct_assertions(struct, f"{word} {name}")
    return "\n".join([*lines, ""])


def check_mirror(found: RustLayout) -> Compiled:
    """Compile the mirror: does C lay the types out as computed here?"""
    return check_source(mirror_source(found), ())


def problems_of(found: RustLayout) -> tuple[Finding, ...]:
    """Refused types as findings."""
    return tuple(
        Finding(
            id="AB020",
            severity="error",
            file=problem.item.file,
            line=problem.line,
            message=f"{problem.item.name}: {problem.words}",
            why=_WHY_REFUSED,
            fix="use a construct that C has, or check only the structs that matter with --struct",
        )
        for problem in found.problems
    )


def compare_with_headers(
    found: RustLayout, headers: Sequence[Path], includes: Sequence[Path]
) -> tuple[Comparison, str]:
    """Compare the types with those of the same name in C headers; also the C file that asserts the same.

    Raises:
        HeadersUnreadable: a header cannot be laid out.
    """
    folders = [*dict.fromkeys([*(header.resolve().parent for header in headers), *includes])]
    names = [header.name for header in headers]
    source = ", ".join(names)
    actual = layout_of_headers(names, folders, source=source)
    common = [name for name in found.layout.structs if name in actual.structs]
    compared = compare_layouts(found.layout, actual, required=common, partial=())
    absent = tuple(
        Finding(
            id="AB021",
            severity="error",
            file=name,
            line=0,
            message=f"{source}: no type {name} is defined there, so it was compared with nothing",
            why="a struct that only one side knows is checked by nobody",
            fix="give the header that defines it with --header, or choose structs with --struct",
        )
        for name in found.layout.structs
        if name not in actual.structs
    )
    spellings = {name: struct.spelling for name, struct in structs_of_headers(names, folders, source=source).items()}
    shared = replace(found.layout, structs={name: found.layout.structs[name] for name in common})
    return replace(compared, findings=compared.findings + absent), assertions_of(shared, names, spellings)
