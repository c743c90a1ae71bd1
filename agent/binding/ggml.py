"""What is used of ggml, which the binding does not declare: functions, and the struct of a tensor."""

from __future__ import annotations

import ctypes
from typing import Any

from agent.binding.layout import Struct
from agent.binding.structs import struct_of, structure_of

_POINTER = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_STRING = ctypes.c_char_p
_INT = ctypes.c_int
_MAX_DIMS = 4
_MAX_OP_PARAMS = 64
_MAX_SRC = 10
_MAX_NAME = 64


class GgmlTensor(ctypes.Structure):
    """`struct ggml_tensor` of ggml.h, up to the fields that are read. `lay_out_tensor` gives it its fields, once a process."""


class GgufInitParams(ctypes.Structure):
    """`struct gguf_init_params` of gguf.h."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", _POINTER))


class _Declared(ctypes.Structure):
    """As ggml.h of the binding's pin has it."""

    _fields_ = (
        ("type", _INT),
        ("buffer", _POINTER),
        ("ne", ctypes.c_int64 * _MAX_DIMS),
        ("nb", _SIZE * _MAX_DIMS),
        ("op", _INT),
        ("op_params", ctypes.c_int32 * (_MAX_OP_PARAMS // 4)),
        ("flags", ctypes.c_int32),
        ("src", _POINTER * _MAX_SRC),
        ("view_src", _POINTER),
        ("view_offs", _SIZE),
        ("data", _POINTER),
        ("name", ctypes.c_char * _MAX_NAME),
    )


# name -> (result, arguments); ggml.h, ggml-backend.h and gguf.h of the pin
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_op_name": (_STRING, [_INT]),
    "ggml_type_name": (_STRING, [_INT]),
    "ggml_nbytes": (_SIZE, [_POINTER]),
    "ggml_n_dims": (_INT, [_POINTER]),
    "ggml_get_name": (_STRING, [_POINTER]),
    "ggml_backend_tensor_get": (None, [_POINTER, _POINTER, _SIZE, _SIZE]),
    "ggml_backend_tensor_set": (None, [_POINTER, _POINTER, _SIZE, _SIZE]),
    "ggml_backend_buffer_get_type": (_POINTER, [_POINTER]),
    "ggml_backend_buft_get_device": (_POINTER, [_POINTER]),
    "ggml_backend_buft_name": (_STRING, [_POINTER]),
    "ggml_backend_dev_name": (_STRING, [_POINTER]),
    "ggml_backend_dev_description": (_STRING, [_POINTER]),
    "ggml_backend_dev_type": (_INT, [_POINTER]),
    "ggml_backend_dev_count": (_SIZE, []),
    "ggml_backend_dev_get": (_POINTER, [_SIZE]),
    "ggml_backend_dev_memory": (None, [_POINTER, ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE)]),
    "gguf_init_from_file": (_POINTER, [_STRING, GgufInitParams]),
    "gguf_free": (None, [_POINTER]),
}


def declared_tensor() -> Struct:
    """The layout of `struct ggml_tensor` as it is declared here."""
    return struct_of("ggml_tensor", _Declared)


def lay_out_tensor(layout: Struct | None) -> bool:
    """Give `GgmlTensor` the fields of `layout`, or those that are declared here. Whether a field lies elsewhere.

    Raises:
        LayoutInvalid: a field is gone, or has another size or kind.
    """
    made: type[ctypes.Structure] = _Declared
    if layout is not None and any(layout.field(field.name) != field for field in declared_tensor().fields):
        made = structure_of(layout, _Declared)
    GgmlTensor._fields_ = made._fields_
    return made is not _Declared


def open_ggml(path: str) -> tuple[ctypes.CDLL, tuple[str, ...]]:
    """Open the ggml that the libllama at `path` itself uses; the names of functions that it lacks come with it.

    A symbol looked up through the handle of libllama is searched in the libraries that it depends on. Opening
    ``libggml-base.so`` by its path instead could load a second copy (wheels hold copies, not links), with a device
    registry of its own.
    """
    library, missing = ctypes.CDLL(path), []
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            missing.append(name)
            continue
        function.restype = result
        function.argtypes = arguments
    return library, tuple(missing)
