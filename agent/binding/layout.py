"""How structs lie in memory, as a compiler or a ctypes binding sees them."""

from __future__ import annotations

import math
import platform
import struct as machine_words
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import LayoutInvalid


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field. `offset`, `size` and `align` are bytes; `kind` is pointer, int, float, bool or other."""

    name: str
    offset: int
    size: int
    align: int
    kind: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.size} bytes at {self.offset})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Struct:
    """One struct; `size` and `align` are bytes, `fields` are in the order of their declaration."""

    name: str
    size: int
    align: int
    fields: tuple[Field, ...]

    def field(self, name: str) -> Field | None:
        """The field of that name."""
        return next((field for field in self.fields if field.name == name), None)

    def unexplained(self) -> Iterator[str]:
        """Bytes that the fields and the rules of alignment do not account for: then a field is missing from the list."""
        end = 0
        for field in self.fields:
            if field.offset > _up(end, field.align):
                yield f"{self.name}: bytes {_up(end, field.align)} to {field.offset} before {field.name}"
            end = max(end, field.offset + field.size)
        if self.size > _up(end, self.align):
            yield f"{self.name}: bytes {_up(end, self.align)} to {self.size} at the end"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The structs of one llama.cpp, by name.

    Attributes:
        structs: the structs.
        source: whose layout this is, for people: ``headers``, ``the binding``.
        machine: architecture and word size, since the same headers differ between machines.
    """

    structs: Mapping[str, Struct]
    source: str
    machine: str

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "source": self.source,
            "machine": self.machine,
            "structs": [
                {
                    "name": struct.name,
                    "size": struct.size,
                    "align": struct.align,
                    "fields": [
                        {"name": f.name, "offset": f.offset, "size": f.size, "align": f.align, "kind": f.kind}
                        for f in struct.fields
                    ],
                }
                for struct in self.structs.values()
            ],
        }

    @classmethod
    def from_json(cls, data: Any) -> Layout:
        """The inverse of `to_json`.

        Raises:
            LayoutInvalid: it is not a layout, or one that no compiler makes.
        """
        try:
            structs = [
                Struct(
                    name=str(struct["name"]),
                    size=_count(struct["size"]),
                    align=_count(struct["align"]),
                    fields=tuple(
                        Field(
                            name=str(field["name"]),
                            offset=_count(field["offset"]),
                            size=_count(field["size"]),
                            align=_count(field["align"]),
                            kind=str(field["kind"]),
                        )
                        for field in struct["fields"]
                    ),
                )
                for struct in data["structs"]
            ]
            layout = cls(
                structs={struct.name: struct for struct in structs},
                source=str(data["source"]),
                machine=str(data["machine"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LayoutInvalid(f"the layout of the build cannot be read ({error!r}): make the build again") from error
        for struct in structs:
            if any(field.offset + field.size > struct.size for field in struct.fields) or struct.align < 1:
                raise LayoutInvalid(f"the layout of {struct.name} contradicts itself: make the build again")
        return layout


def machine_name() -> str:
    """Of this process, as `x86_64-64bit-little`."""
    return f"{platform.machine().lower()}-{8 * machine_words.calcsize('P')}bit-{sys.byteorder}"


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a number of bytes")
    return value


def _up(offset: int, align: int) -> int:
    return math.ceil(offset / align) * align
