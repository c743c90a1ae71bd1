"""The layout of the structs as the Python binding declares them, and ctypes structures made from a layout."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from agent.build.headers import machine_name
from agent.build.layout import Field, Layout, Struct
from agent.engine.library import GgmlTensor
from agent.errors import EngineUnavailable, LayoutInvalid

# single-letter codes of ctypes' simple types
_KIND_OF_CODE = {"?": "bool", "f": "float", "d": "float", "P": "pointer", "z": "pointer", "Z": "pointer"}
_INTEGERS = frozenset("bBhHiIlLqQc")
_INTEGER_OF_SIZE: dict[int, Any] = {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}
_FLOAT_OF_SIZE: dict[int, Any] = {4: ctypes.c_float, 8: ctypes.c_double}


def import_binding() -> ModuleType:
    """The low-level module of llama-cpp-python. Importing it loads the libraries, so do this in a child where they may be wrong.

    Raises:
        EngineUnavailable: it cannot be imported.
    """
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except (ImportError, AttributeError, OSError, RuntimeError, FileNotFoundError) as error:
        raise EngineUnavailable(
            f"the binding does not load these libraries ({error}): install the extra `engine`, and libraries of its pin"
        ) from error


def layout_of_binding(module: ModuleType, *, source: str) -> Layout:
    """The layout of every ctypes structure of `module` that has fields, and of the engine's own `ggml_tensor`."""
    found = {name: value for name, value in vars(module).items() if _is_declared(name, value)}
    found["ggml_tensor"] = GgmlTensor
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


def structure_of(struct: Struct, declared: type[ctypes.Structure] | None = None) -> type[ctypes.Structure]:
    """A ctypes structure with exactly this layout: how a binding may follow a pin whose structs have moved.

    Args:
        struct: the layout.
        declared: the binding's structure. Fields of the same name keep its types, so that callbacks and pointers can be
            assigned as before. Other fields of kind `other` become bytes.

    Raises:
        LayoutInvalid: fields overlap, a field of the binding is gone, or it has another size or kind: no mapping is certain.
    """
    ours = {field.name: field for field in _fields(declared)} if declared else {}
    types = {name: kind for name, kind, *_ in declared._fields_} if declared else {}
    if lost := [name for name in ours if struct.field(name) is None]:
        raise LayoutInvalid(
            f"{struct.name}: the binding's field {lost[0]} is not there any more: it cannot be followed"
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
    # the base has the alignment of the struct, which decides how it is passed by value; packing keeps the offsets
    made = type(struct.name, (ctypes.Structure,), {"_pack_": struct.align, "_fields_": fields})
    if struct_of(struct.name, made).size != struct.size:
        raise LayoutInvalid(f"{struct.name}: {ctypes.sizeof(made)} bytes instead of {struct.size}")
    places = {field.name: field.offset for field in _fields(made)}
    if any(places[field.name] != field.offset for field in struct.fields):
        raise LayoutInvalid(f"{struct.name}: its offsets cannot be had with ctypes")
    return made


def follow(module: ModuleType, layout: Layout, names: Sequence[str]) -> tuple[str, ...]:
    """Let the functions of `module` use structs as `layout` has them; the names of those that were replaced.

    Fields that only the layout has keep what llama.cpp's default parameters put there. Only structs that llama.cpp fills
    by a function of its own should be named: nothing fills a new field of another.

    Raises:
        LayoutInvalid: a struct cannot be followed. Nothing is replaced then.
    """
    replaced: dict[Any, Any] = {}
    for name in names:
        declared = getattr(module, name)
        if name not in layout.structs:
            raise LayoutInvalid(f"the layout has no struct {name}: it cannot be followed")
        if struct_of(name, declared).fields != layout.structs[name].fields:
            replaced[declared] = structure_of(layout.structs[name], declared)
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
