"""ctypes structures and layouts: how the binding declares its structs, and how it follows others."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any

from agent.binding.layout import Field, Layout, Struct, machine_name
from agent.binding.used import FIELDS
from agent.errors import LayoutInvalid

# single-letter codes of ctypes' simple types
_KIND_OF_CODE = {"?": "bool", "f": "float", "d": "float", "P": "pointer", "z": "pointer", "Z": "pointer"}
_INTEGERS = frozenset("bBhHiIlLqQc")
_INTEGER_OF_SIZE: dict[int, Any] = {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}
_FLOAT_OF_SIZE: dict[int, Any] = {4: ctypes.c_float, 8: ctypes.c_double}
# passed by value: filled by a function of llama.cpp before we set fields, and filled by us alone
FILLED = ("llama_model_params", "llama_context_params")
EMPTY = ("llama_batch",)


def layout_of_module(module: ModuleType, *, source: str) -> Layout:
    """The layout of every ctypes structure of `module` that has fields."""
    found = {name: value for name, value in vars(module).items() if _is_declared(name, value)}
    structs = {name: struct_of(name, found[name]) for name in sorted(found)}
    return Layout(structs=structs, source=source, machine=machine_name())


def struct_of(name: str, declared: type[ctypes.Structure]) -> Struct:
    """The layout of one ctypes structure. Members of anonymous unions are not looked into: ctypes gives the union a name."""
    return Struct(
        name=name,
        size=ctypes.sizeof(declared),
        align=ctypes.alignment(declared),
        fields=tuple(_fields(declared)),
    )


def structure_of(
    struct: Struct, declared: type[ctypes.Structure] | None = None, *, used: Collection[str] | None = None
) -> type[ctypes.Structure]:
    """A ctypes structure with exactly this layout: how a binding follows a pin whose structs have moved.

    Args:
        struct: the layout.
        declared: the binding's structure. Fields of the same name keep its types, so that callbacks and pointers can be
            assigned as before. Other fields of kind `other` become bytes.
        used: fields of the binding that must be there; None for all of them. To set one that is not there is an error.

    Raises:
        LayoutInvalid: fields overlap, a used field is gone, or one has another size or kind: no mapping is certain.
    """
    ours = {field.name: field for field in _fields(declared)} if declared else {}
    types = {name: kind for name, kind, *_ in declared._fields_} if declared else {}
    if lost := [name for name in ours if struct.field(name) is None and (used is None or name in used)]:
        raise LayoutInvalid(
            f"{struct.name}: the field {lost[0]}, which is used, is not there in this build: it cannot be followed"
        )
    fields: list[tuple[str, Any]] = []
    end = 0
    for field in struct.fields:
        if field.offset < end:
            raise LayoutInvalid(f"{struct.name}: {field} overlaps the field before it: unions cannot be followed")
        if field.offset > end:
            fields.append((f"_padding_{end}", ctypes.c_uint8 * (field.offset - end)))
        known = ours.get(field.name)
        if known and (known.size, known.kind) != (field.size, field.kind):
            raise LayoutInvalid(f"{struct.name}: {field} is {known} in the binding: it cannot be followed")
        fields.append((field.name, types.get(field.name) or _type_of(field)))
        end = field.offset + field.size
    if struct.size > end:
        fields.append((f"_padding_{end}", ctypes.c_uint8 * (struct.size - end)))
    # packing keeps the offsets, slots keep an assignment to a field that is not there from being taken for one
    made = type(struct.name, (ctypes.Structure,), {"_pack_": struct.align, "_fields_": fields, "__slots__": ()})
    if struct_of(struct.name, made).size != struct.size:
        raise LayoutInvalid(f"{struct.name}: {ctypes.sizeof(made)} bytes instead of {struct.size}")
    places = {field.name: field.offset for field in _fields(made)}
    if any(places[field.name] != field.offset for field in struct.fields):
        raise LayoutInvalid(f"{struct.name}: its offsets cannot be had with ctypes")
    return made


def follow(module: ModuleType, layout: Layout) -> tuple[str, ...]:
    """Let the functions of `module` use the structs that are passed by value as `layout` has them; the names of those that moved.

    Fields that only the layout has keep what llama.cpp's default parameters put there.

    Raises:
        LayoutInvalid: a struct cannot be followed. Nothing is replaced then.
    """
    if layout.machine != machine_name():
        raise LayoutInvalid(f"{layout.source} is of {layout.machine}, this machine is {machine_name()}")
    replaced: dict[Any, Any] = {}
    for name in FILLED + EMPTY:
        declared, struct = getattr(module, name), layout.structs.get(name)
        if struct is None:
            raise LayoutInvalid(f"{layout.source} has no struct {name}: it cannot be followed")
        ours = struct_of(name, declared)
        if (ours.fields, ours.size, ours.align) == (struct.fields, struct.size, struct.align):
            continue
        if name in EMPTY and (new := [field for field in struct.fields if ours.field(field.name) is None]):
            raise LayoutInvalid(f"{name}: nothing fills the field {new[0]}, which the binding does not know")
        replaced[declared] = structure_of(struct, declared, used=FIELDS[name])
    for value in list(vars(module).values()):
        if not isinstance(value, ctypes._CFuncPtr):  # type: ignore[attr-defined]  # noqa: SLF001
            continue
        value.restype = replaced.get(value.restype, value.restype)
        if value.argtypes:
            value.argtypes = [replaced.get(kind, kind) for kind in value.argtypes]
    for declared, made in replaced.items():
        setattr(module, declared.__name__, made)
    return tuple(declared.__name__ for declared in replaced)


def _type_of(field: Field) -> Any:
    if field.kind == "pointer" and field.size == ctypes.sizeof(ctypes.c_void_p):
        return ctypes.c_void_p
    if field.kind == "bool" and field.size == 1:
        return ctypes.c_bool
    if field.kind == "int" and field.size in _INTEGER_OF_SIZE:
        return _INTEGER_OF_SIZE[field.size]
    if field.kind == "float" and field.size in _FLOAT_OF_SIZE:
        return _FLOAT_OF_SIZE[field.size]
    return ctypes.c_uint8 * field.size


def _is_declared(name: str, value: Any) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, ctypes.Structure)
        and value is not ctypes.Structure
        and value.__name__ == name
        and bool(getattr(value, "_fields_", ()))
    )


def _fields(declared: type[ctypes.Structure]) -> Iterator[Field]:
    for name, kind, *_ in declared._fields_:
        place = getattr(declared, name)
        yield Field(name=name, offset=place.offset, size=place.size, align=ctypes.alignment(kind), kind=_kind(kind))


@functools.cache
def _kind(kind: Any) -> str:
    code = getattr(kind, "_type_", None)
    if isinstance(code, str) and not issubclass(kind, ctypes.Array):
        return _KIND_OF_CODE.get(code, "int" if code in _INTEGERS else "other")
    # the base of pointer types and of function types has no public name
    bases = {base.__name__ for base in kind.__mro__}
    return "pointer" if bases & {"_Pointer", "_CFuncPtr", "CFuncPtr"} else "other"
