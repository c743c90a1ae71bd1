"""The loaded llama.cpp: functions of libllama and ggml, and the one struct that we read by layout.

`llama_cpp` (the low-level module of llama-cpp-python) declares the C API of libllama; `LLAMA_CPP_LIB_PATH` makes it load
another build of the libraries, which is how the build of a candidate pin is put under test. The few functions of ggml that
read and write a graph node are looked up through libllama.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.errors import EngineUnavailable

# enum ggml_log_level (ggml.h)
_LOG_ERROR = 4

# enum ggml_tensor_flag (ggml.h)
FLAG_INPUT = 1
FLAG_COMPUTE = 16

_GGML_MAX_DIMS = 4
_GGML_MAX_OP_PARAMS = 64
_GGML_MAX_SRC = 10
_GGML_MAX_NAME = 64


class GgmlTensor(ctypes.Structure):
    """`struct ggml_tensor` of ggml.h, up to the fields that the engine reads."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * _GGML_MAX_DIMS),
        ("nb", ctypes.c_size_t * _GGML_MAX_DIMS),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * (_GGML_MAX_OP_PARAMS // 4)),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * _GGML_MAX_SRC),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * _GGML_MAX_NAME),
    )


@dataclass(frozen=True)
class Library:
    """The libraries under test.

    Attributes:
        llama: the `llama_cpp.llama_cpp` module (functions of libllama).
        ggml: functions of the ggml that libllama uses, with their types set.
        folder: where the shared libraries were loaded from.
        version: what `llama_version()` says, for example ``0.5.0``.
    """

    llama: ModuleType
    ggml: ctypes.CDLL
    folder: Path
    version: str


_POINTER = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_STRING = ctypes.c_char_p
_INT = ctypes.c_int

# name -> (result, arguments); ggml.h, ggml-backend.h and gguf.h of the pin
_GGML_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_op_name": (_STRING, [_INT]),
    "ggml_type_name": (_STRING, [_INT]),
    "ggml_nbytes": (_SIZE, [_POINTER]),
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
}


def _import_binding() -> ModuleType:
    """Import the low-level module alone.

    The package's own `__init__` also imports its high-level API with chat templates and caches, which takes longer than
    all else that a child does before its first lane; so a bare package stands in for it.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None:
        raise ImportError("no module named llama_cpp")
    if "llama_cpp" not in sys.modules:
        package = ModuleType("llama_cpp")
        package.__path__ = list(spec.submodule_search_locations or ())
        package.__spec__ = spec
        sys.modules["llama_cpp"] = package
    return importlib.import_module("llama_cpp.llama_cpp")


def _ggml(llama_path: str) -> ctypes.CDLL:
    """Open the ggml that libllama itself uses.

    A symbol looked up through the handle of libllama is searched in the libraries that it depends on. Opening
    ``libggml-base.so`` by its path instead could load a second copy (wheels hold copies, not links), with a device
    registry of its own.
    """
    library = ctypes.CDLL(llama_path)
    for name, (result, arguments) in _GGML_FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise EngineUnavailable(f"{llama_path} does not lead to {name}: its ggml is not that of this pin") from None
        function.restype = result
        function.argtypes = arguments
    return library


@functools.cache
def load_library() -> Library:
    """Load llama.cpp once in this process, silence its log below errors, and initialise its backends.

    Raises:
        EngineUnavailable: llama-cpp-python is not installed, or its libraries cannot be loaded.
    """
    try:
        llama = _import_binding()
    except ImportError as error:
        raise EngineUnavailable(
            f"llama-cpp-python cannot be imported ({error}): install the extra `engine`, "
            "or point LLAMA_CPP_LIB_PATH at libraries of the same release"
        ) from error
    except (OSError, RuntimeError, FileNotFoundError) as error:
        raise EngineUnavailable(f"the libraries of llama.cpp cannot be loaded: {error}") from error

    path = llama._lib._name  # noqa: SLF001 - the only place where the binding keeps it
    ggml = _ggml(path)

    @llama.llama_log_callback  # type: ignore[untyped-decorator]
    def log(level: int, text: bytes, _user_data: Any) -> None:
        if level == _LOG_ERROR:
            sys.stderr.write(text.decode("utf-8", "replace"))
            sys.stderr.flush()

    llama.llama_log_set(log, ctypes.c_void_p(0))
    _KEEP_ALIVE.append(log)
    llama.llama_backend_init()
    return Library(llama=llama, ggml=ggml, folder=Path(path).resolve().parent, version=llama.llama_version().decode())


# ctypes callbacks that C code holds must outlive every call
_KEEP_ALIVE: list[Any] = []
