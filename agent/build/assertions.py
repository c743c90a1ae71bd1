"""A layout as C static assertions: whoever compiles them against other headers learns at once that a struct has moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.binding.layout import Layout, Struct


def assertions_of(layout: Layout, headers: Sequence[str], spellings: Mapping[str, str] | None = None) -> str:
    """A C file of `_Static_assert`s on size, alignment and every offset of the structs of `layout`.

    Args:
        layout: the layout that is asserted.
        headers: what the file includes.
        spellings: how the headers write a type, where that is not `struct NAME`.
    """
    lines = [
        f"/* Struct layout of {layout.source}, for {layout.machine}. It compiles only where it holds. By skippy-agent abi. */",
        "#include <stdbool.h>",
        "#include <stddef.h>",
        "#include <stdint.h>",
        *(f'#include "{header}"' for header in headers),
    ]
    for struct in layout.structs.values():
        lines += ["", *struct_assertions(struct, (spellings or {}).get(struct.name))]
    return "\n".join([*lines, ""])


def struct_assertions(struct: Struct, spelling: str | None = None) -> list[str]:
    """The assertions of one struct; `spelling` is its type in C where that is not `struct NAME`."""
    name = spelling or f"struct {struct.name}"
    lines = [
        f'_Static_assert(sizeof({name}) == {struct.size}, "{struct.name}: size is not {struct.size}");',
        f'_Static_assert(_Alignof({name}) == {struct.align}, "{struct.name}: alignment is not {struct.align}");',
    ]
    for field in struct.fields:
        place = f"offsetof({name}, {field.name}) == {field.offset}"
        size = f"sizeof((({name} *) 0)->{field.name}) == {field.size}"
        lines.append(f'_Static_assert({place}, "{struct.name}.{field.name}: offset is not {field.offset}");')
        lines.append(f'_Static_assert({size}, "{struct.name}.{field.name}: size is not {field.size}");')
    return lines
