"""Loads the binding on the libraries under test, and lets it follow the layout of their build.

`LLAMA_CPP_LIB_PATH` makes the binding load other libraries than its own. Where they are those of a build, in `lib` beside its
`build.json`, the structs are taken from that record. So the one variable says which libraries and which layout, and each child
that loads them takes both from one place.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from agent.binding.defaults import read_defaults, wrong_defaults
from agent.binding.ggml import FUNCTIONS as GGML_FUNCTIONS
from agent.binding.ggml import lay_out_tensor, open_ggml
from agent.binding.layout import Layout
from agent.binding.structs import follow, layout_of_module
from agent.binding.used import FUNCTIONS
from agent.errors import EngineUnavailable, FunctionMissing, LayoutInvalid, LayoutUnknown

VARIABLE = "LLAMA_CPP_LIB_PATH"
RECORD = "build.json"
_OTHER_PIN = (
    "these libraries are of another pin than the binding, and nothing says how its structs lie; give them as a build that "
    "`skippy-agent build` made, which records that"
)
_VERSION = "llama_version"
_NAMES_OF_BUILD = ("key", "commit", "patch_digest", "backend")
USED = FUNCTIONS | GGML_FUNCTIONS.keys()


@dataclass(frozen=True)
class Binding:
    """The binding on the libraries under test.

    Attributes:
        llama: the low-level module: functions of libllama, and structs with the layout of the build.
        ggml: functions of the ggml that libllama uses, with their types set.
        folder: where the shared libraries were loaded from.
        build: key, commit, patch digest and backend of the build that they are of; None where no record lies beside them.
        declared: the structs as the binding declares them.
        followed: structs that lie elsewhere in the build and are read and written there.
        missing: functions that the binding or this project declares and the libraries lack.
    """

    llama: ModuleType
    ggml: ctypes.CDLL
    folder: Path
    build: Mapping[str, Any] | None
    declared: Layout
    followed: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def version(self) -> str:
        """What `llama_version()` says, for example ``0.5.0``; `unknown` where llama.cpp is older than that function."""
        return "unknown" if _VERSION in self.missing else self.llama.llama_version().decode("utf-8", "replace")


@functools.cache
def load_binding() -> Binding:
    """Load the binding, and refuse libraries that it cannot be used with, before any model is opened.

    Raises:
        EngineUnavailable: the binding is not installed, or its libraries cannot be loaded.
        FunctionMissing: they lack a function that is used.
        LayoutInvalid: their structs cannot be followed.
        LayoutUnknown: their structs lie elsewhere, and nothing says where.
    """
    binding = open_binding()
    require_known(binding)
    for wrong in wrong_defaults(read_defaults(binding.llama)):
        raise LayoutUnknown(f"{binding.folder}: {wrong}: {_OTHER_PIN}")
    return binding


@functools.cache
def open_binding() -> Binding:
    """Load the binding without looking at what it can do; see `load_binding`."""
    try:
        llama, missing = _import()
    except ImportError as error:
        raise EngineUnavailable(
            f"llama-cpp-python cannot be imported ({error}): install the extra `engine`, "
            "or point LLAMA_CPP_LIB_PATH at libraries of the same release"
        ) from error
    except (OSError, RuntimeError, AttributeError) as error:
        raise EngineUnavailable(f"the libraries of llama.cpp cannot be loaded: {error}") from error
    path = str(llama._lib._name)  # noqa: SLF001 - the only place where the binding keeps it
    ggml, ggml_missing = open_ggml(path)
    declared = layout_of_module(llama, source="llama-cpp-python")
    record = read_record()
    layout = Layout.from_json(record["layout"]) if record else None
    followed = follow(llama, layout) if layout else ()
    if lay_out_tensor(layout.structs.get("ggml_tensor") if layout else None):
        followed += ("ggml_tensor",)
    return Binding(
        llama=llama,
        ggml=ggml,
        folder=Path(path).resolve().parent,
        build={name: record.get(name) for name in _NAMES_OF_BUILD} if record else None,
        declared=declared,
        followed=followed,
        missing=missing + ggml_missing,
    )


def require_known(binding: Binding) -> None:
    """Refuse libraries without a function that is used, and libraries of another pin whose structs nobody knows.

    Raises:
        FunctionMissing: at least one function that is used is not there; all are named.
        LayoutUnknown: they are of no build, and lack what libraries of the binding's pin have.
    """
    if lost := [name for name in binding.missing if name in USED]:
        raise FunctionMissing(
            f"{binding.folder} lacks {', '.join(lost)}, which every lane uses: its llama.cpp is too far from that of the "
            "binding; take a binding of that release"
        )
    if binding.build is None and binding.missing:
        count, first = len(binding.missing), binding.missing[0]
        raise LayoutUnknown(
            f"{binding.folder} lacks {count} functions that the binding has, such as {first}: {_OTHER_PIN}"
        )


def read_record() -> Mapping[str, Any] | None:
    """What the build of the libraries under test records of itself; None where they are not those of a build.

    Raises:
        LayoutInvalid: the record cannot be read.
    """
    folder = os.environ.get(VARIABLE)
    path = Path(folder).absolute().parent / RECORD if folder else None
    if path is None or not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LayoutInvalid(f"{path} cannot be read ({error}): make the build again") from error
    if not isinstance(record, dict) or "layout" not in record:
        raise LayoutInvalid(f"{path} holds no layout of structs: make the build again")
    return record


def _import() -> tuple[ModuleType, tuple[str, ...]]:
    """Import the low-level module alone, also where the libraries lack functions that it declares; these are named.

    The package's own `__init__` also imports its high-level API with chat templates and caches, which takes longer than
    all else that a child does before its first lane; so a bare package stands in for it. The module looks every function up
    while it is imported, and an older llama.cpp lacks the newest ones, which nobody here calls.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None:
        raise ImportError("no module named llama_cpp")
    if "llama_cpp" not in sys.modules:
        package = ModuleType("llama_cpp")
        package.__path__ = list(spec.submodule_search_locations or ())
        package.__spec__ = spec
        sys.modules["llama_cpp"] = package
    extensions: Any = importlib.import_module("llama_cpp._ctypes_extensions")
    original, missing = extensions.ctypes_function_for_shared_library, []

    def tolerant(library: ctypes.CDLL) -> Callable[..., Any]:
        declare = original(library)

        def function(name: str, argtypes: list[Any], restype: Any, enabled: bool = True) -> Any:
            if enabled and not hasattr(library, name):
                missing.append(name)
                return lambda _declared: _refuse(name)
            return declare(name, argtypes, restype, enabled)

        return function

    extensions.ctypes_function_for_shared_library = tolerant
    try:
        return importlib.import_module("llama_cpp.llama_cpp"), tuple(missing)
    finally:
        extensions.ctypes_function_for_shared_library = original


def _refuse(name: str) -> Callable[..., NoReturn]:
    def call(*_arguments: object) -> NoReturn:
        raise FunctionMissing(f"the libraries under test have no function {name}: take a binding of their release")

    return call
