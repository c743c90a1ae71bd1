"""The loaded llama.cpp, ready for use: log, backends, and what a receipt says of it."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.binding.ggml import GgmlTensor
from agent.binding.load import load_binding

__all__ = ["FLAG_COMPUTE", "FLAG_INPUT", "GgmlTensor", "Library", "load_library"]

# enum ggml_log_level (ggml.h)
_LOG_ERROR = 4

# enum ggml_tensor_flag (ggml.h)
FLAG_INPUT = 1
FLAG_COMPUTE = 16


@dataclass(frozen=True)
class Library:
    """The libraries under test.

    Attributes:
        llama: the `llama_cpp.llama_cpp` module (functions of libllama).
        ggml: functions of the ggml that libllama uses, with their types set.
        folder: where the shared libraries were loaded from.
        build: key, commit, patch digest and backend of the build that they are of; None where they are of no build.
        version: what it calls itself, for example ``0.5.0``; `unknown` where it does not say.
        followed: structs that lie elsewhere than the binding declares them, and are used as the build has them.
    """

    llama: ModuleType
    ggml: ctypes.CDLL
    folder: Path
    build: Mapping[str, Any] | None
    version: str
    followed: tuple[str, ...]


@functools.cache
def load_library() -> Library:
    """Load llama.cpp once in this process, silence its log below errors, and initialise its backends.

    Raises:
        EngineUnavailable, LayoutInvalid: see `load_binding`.
    """
    binding = load_binding()
    llama = binding.llama

    @llama.llama_log_callback  # type: ignore[untyped-decorator]
    def log(level: int, text: bytes, _user_data: Any) -> None:
        if level == _LOG_ERROR:
            sys.stderr.write(text.decode("utf-8", "replace"))
            sys.stderr.flush()

    llama.llama_log_set(log, ctypes.c_void_p(0))
    _KEEP_ALIVE.append(log)
    llama.llama_backend_init()
    return Library(
        llama=llama,
        ggml=binding.ggml,
        folder=binding.folder,
        build=binding.build,
        version=binding.version,
        followed=binding.followed,
    )


# ctypes callbacks that C code holds must outlive every call
_KEEP_ALIVE: list[Any] = []
