"""llama.cpp's own GGUF reader, through ctypes: what it says about a file, in the terms of ours."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent.header.text import decode, printable

_NAMES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64")  # fmt: skip  # noqa: E501
_C_TYPES: dict[str, Any] = {
    "uint8": ctypes.c_uint8, "int8": ctypes.c_int8, "uint16": ctypes.c_uint16, "int16": ctypes.c_int16,
    "uint32": ctypes.c_uint32, "int32": ctypes.c_int32, "float32": ctypes.c_float, "bool": ctypes.c_bool,
    "uint64": ctypes.c_uint64, "int64": ctypes.c_int64, "float64": ctypes.c_double,
}  # fmt: skip
_GETTERS = {
    "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "float32": "f32",
    "bool": "bool", "uint64": "u64", "int64": "i64", "float64": "f64",
}  # fmt: skip


def library_path() -> Path | None:
    """Return the installed libggml-base, None where llama-cpp-python is not installed."""
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "lib"
    return next((path for name in ("libggml-base.so", "libggml-base.dylib") if (path := folder / name).exists()), None)


class _InitParams(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


@dataclass(frozen=True)
class Seen:
    """What llama.cpp's reader saw: the same facts as `Header`, arrays as (type, length, first numbers)."""

    version: int
    alignment: int
    data_offset: int
    values: dict[str, object]
    tensors: tuple[tuple[str, int, int, int], ...]


class GgmlReader:
    """The library, ready to read files and bytes."""

    def __init__(self, path: Path) -> None:
        self._lib = ctypes.CDLL(str(path))
        pointer, key = ctypes.c_void_p, ctypes.c_int64
        for name, result, arguments in (
            ("gguf_init_from_file", pointer, [ctypes.c_char_p, _InitParams]),
            ("gguf_init_from_buffer", pointer, [ctypes.c_char_p, ctypes.c_size_t, _InitParams]),
            ("gguf_free", None, [pointer]),
            ("gguf_get_version", ctypes.c_uint32, [pointer]),
            ("gguf_get_alignment", ctypes.c_size_t, [pointer]),
            ("gguf_get_data_offset", ctypes.c_size_t, [pointer]),
            ("gguf_get_n_kv", ctypes.c_int64, [pointer]),
            ("gguf_get_key", ctypes.c_char_p, [pointer, key]),
            ("gguf_get_kv_type", ctypes.c_int, [pointer, key]),
            ("gguf_get_arr_type", ctypes.c_int, [pointer, key]),
            ("gguf_get_arr_n", ctypes.c_size_t, [pointer, key]),
            ("gguf_get_arr_data", pointer, [pointer, key]),
            ("gguf_get_val_str", ctypes.c_char_p, [pointer, key]),
            ("gguf_get_n_tensors", ctypes.c_int64, [pointer]),
            ("gguf_get_tensor_name", ctypes.c_char_p, [pointer, key]),
            ("gguf_get_tensor_type", ctypes.c_int, [pointer, key]),
            ("gguf_get_tensor_offset", ctypes.c_size_t, [pointer, key]),
            ("gguf_get_tensor_size", ctypes.c_size_t, [pointer, key]),
            ("ggml_type_size", ctypes.c_size_t, [ctypes.c_int]),
            ("ggml_blck_size", ctypes.c_int64, [ctypes.c_int]),
            ("ggml_log_set", None, [pointer, pointer]),
            *((f"gguf_get_val_{_GETTERS[name]}", _C_TYPES[name], [pointer, key]) for name in _GETTERS),
        ):
            function = getattr(self._lib, name)
            function.restype, function.argtypes = result, arguments
        # what the reader logs about hostile files is not of interest
        self._silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self._lib.ggml_log_set(ctypes.cast(self._silent, ctypes.c_void_p), None)

    def open_file(self, path: Path) -> bool:
        """Read a file's header and let it go; True where it was accepted. For timing."""
        context = self._lib.gguf_init_from_file(str(path).encode(), _InitParams(True, None))
        if context:
            self._lib.gguf_free(context)
        return bool(context)

    def read_file(self, path: Path) -> Seen | None:
        """Return what is in the file, None where it is refused."""
        return self._seen(self._lib.gguf_init_from_file(str(path).encode(), _InitParams(True, None)))

    def read_bytes(self, data: bytes) -> Seen | None:
        """Return what is in the bytes, None where they are refused."""
        return self._seen(self._lib.gguf_init_from_buffer(data, len(data), _InitParams(True, None)))

    def block(self, kind: int) -> tuple[int, int]:
        """Return elements and bytes of a block of a tensor type."""
        return self._lib.ggml_blck_size(kind), self._lib.ggml_type_size(kind)

    def _seen(self, context: int | None) -> Seen | None:
        if not context:
            return None
        lib = self._lib
        try:
            keys = range(lib.gguf_get_n_kv(context))
            return Seen(
                version=lib.gguf_get_version(context),
                alignment=lib.gguf_get_alignment(context),
                data_offset=lib.gguf_get_data_offset(context),
                values={_safe(lib.gguf_get_key(context, index)): self._value(context, index) for index in keys},
                tensors=tuple(
                    (
                        _safe(lib.gguf_get_tensor_name(context, index)),
                        lib.gguf_get_tensor_type(context, index),
                        lib.gguf_get_tensor_offset(context, index),
                        lib.gguf_get_tensor_size(context, index),
                    )
                    for index in range(lib.gguf_get_n_tensors(context))
                ),
            )
        finally:
            lib.gguf_free(context)

    def _value(self, context: int, index: int) -> object:
        name = _NAMES[self._lib.gguf_get_kv_type(context, index)]
        if name == "string":
            return decode(self._lib.gguf_get_val_str(context, index))
        if name != "array":
            return getattr(self._lib, f"gguf_get_val_{_GETTERS[name]}")(context, index)
        inner, n = _NAMES[self._lib.gguf_get_arr_type(context, index)], self._lib.gguf_get_arr_n(context, index)
        if inner == "string":
            return inner, n, ()
        data = ctypes.cast(self._lib.gguf_get_arr_data(context, index), ctypes.POINTER(_C_TYPES[inner]))
        return inner, n, tuple(data[at] for at in range(min(n, 4096)))


def _safe(raw: bytes) -> str:
    return printable(decode(raw))
