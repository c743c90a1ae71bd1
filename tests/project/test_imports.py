"""Imports run one way, `matrixgen` is pure, and heavy libraries load only where they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

# Who may import whom inside agent. A new module or folder of agent gets its row here; without one the test is red.
WORDS = frozenset({"errors", "digests", "layer_kind"})
PARTS = WORDS | {"header", "binding", "engine", "twin", "contracts"}
AGENT_MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "layer_kind": frozenset(),
    "digests": frozenset({"errors"}),
    "header": WORDS,
    "binding": WORDS,
    "engine": WORDS | {"header", "binding"},
    "twin": WORDS | {"header", "binding"},
    "contracts": WORDS | {"engine"},
    "radix": WORDS | {"engine"},
    "store": WORDS | {"header"},
    "package": WORDS | {"header", "store"},
    "build": WORDS | {"binding"},
    "lanes": PARTS | {"radix", "package"},
    "faults": PARTS | {"lanes", "radix", "package"},
    "runner": PARTS | {"lanes", "faults"},
    "receipt": WORDS | {"lanes"},
    "draft": WORDS | {"lanes", "runner", "receipt"},
    "certify": PARTS | {"lanes", "runner", "receipt", "store", "build", "draft"},
    "prebuilt": PARTS | {"lanes", "runner", "receipt"},
    "selftest": PARTS | {"lanes", "faults", "runner"},
    "gate": WORDS | {"receipt"},
    "reporters": WORDS | {"header", "lanes", "receipt", "gate", "selftest"},
    "commands": PARTS
    | {
        "package",
        "prebuilt",
        "lanes",
        "faults",
        "runner",
        "receipt",
        "store",
        "build",
        "certify",
        "selftest",
        "gate",
        "reporters",
    },
    "cli": frozenset({"errors", "commands"}),
}

# Third-party libraries that a layer may import when it is itself imported. All others are imported inside functions.
AT_TOP_LEVEL: dict[str, frozenset[str]] = {
    "matrixgen": frozenset({"click"}),
    "header": frozenset({"numpy"}),
    "binding": frozenset({"llama_cpp"}),
    "engine": frozenset({"numpy"}),
    "twin": frozenset({"numpy", "gguf"}),
    "lanes": frozenset({"numpy"}),
    "faults": frozenset({"numpy"}),
    "reporters": frozenset({"rich"}),
    "commands": frozenset({"click"}),
    "cli": frozenset({"click"}),
}

MATRIXGEN_LIBRARIES = frozenset({"click", "yaml", "jsonschema", "referencing"})
# What would make a plan depend on more than the manifest: the network, other programs, the clock, chance.
IMPURE = frozenset(
    {"asyncio", "ctypes", "http", "multiprocessing", "random", "secrets", "socket", "ssl", "subprocess", "time", "uuid"}
)
HEAVY = ("boto3", "botocore", "gguf", "github", "huggingface_hub", "jinja2", "llama_cpp", "numpy", "requests", "rich")
DISTRIBUTION = {"github": "pygithub", "yaml": "pyyaml", "llama_cpp": "llama-cpp-python", "referencing": "jsonschema"}


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported module: its dotted name, its line, and whether importing the importer runs it."""

    name: str
    line: int
    at_top: bool


def imports_of(module: str, source: str) -> Iterator[Import]:
    """Yield every import of a module, also the conditional, local, relative and dynamic ones."""
    package = module.rsplit(".", 1)[0]

    def visit(node: ast.AST, at_top: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            names: list[str] = []
            match child:
                case ast.Import():
                    names = [alias.name for alias in child.names]
                case ast.ImportFrom():
                    base = (
                        ".".join(package.split(".")[: len(package.split(".")) - child.level + 1]) if child.level else ""
                    )
                    stem = ".".join(part for part in (base, child.module) if part)
                    # `from agent import lanes` names a module, `from agent.errors import AgentError` does not.
                    names = [f"{stem}.{alias.name}" for alias in child.names] if "." not in stem else [stem]
                case ast.Call(
                    func=ast.Name(id="__import__") | ast.Attribute(attr="import_module"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    names = [name]
            yield from (Import(name=name, line=getattr(child, "lineno", 0), at_top=at_top) for name in names)
            local = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from visit(child, at_top and not local and not typing_only)

    yield from visit(ast.parse(source), at_top=True)


def layer_of(module: str) -> str:
    """Give the layer of a module: its package, and inside agent the name right below it."""
    top, _, rest = module.partition(".")
    layer = rest.partition(".")[0]
    if top == "agent" and (not layer or layer.startswith("__")):
        return layer if layer == "__main__" else "__init__"
    return layer if top == "agent" else top


def violations(module: str, source: str) -> list[str]:
    """Say what is wrong with the imports of one module, one line a fault."""
    layer, package = layer_of(module), module.partition(".")[0]
    found = []
    if package == "agent" and layer not in {*AGENT_MAY_IMPORT, "__init__", "__main__"}:
        found.append(f"{module}: layer {layer!r} has no row in AGENT_MAY_IMPORT")
    for item in imports_of(module, source):
        top, where = item.name.split(".")[0], f"{module}:{item.line}"
        target = layer_of(item.name)
        if top == "agent" and package == "matrixgen":
            found.append(f"{where}: matrixgen imports {item.name}")
        elif top == "agent" and target != layer:
            allowed = {"cli"} if layer == "__main__" else AGENT_MAY_IMPORT.get(layer, frozenset())
            if target not in {*allowed, "__init__"}:
                found.append(f"{where}: {layer} imports {target} ({item.name})")
        elif (
            package == "matrixgen"
            and not module.startswith("matrixgen.cli")
            and (top in IMPURE or item.name == "urllib.request")
        ):
            found.append(f"{where}: matrixgen is pure and imports {item.name}")
        elif top not in {"agent", "matrixgen", *sys.stdlib_module_names}:
            if package == "matrixgen" and top not in MATRIXGEN_LIBRARIES:
                found.append(f"{where}: matrixgen may not use {top}")
            if item.at_top and top not in AT_TOP_LEVEL.get(layer, frozenset()):
                found.append(f"{where}: {layer} imports {top} at module level")
    return found


def modules() -> dict[str, Path]:
    """Give every module of both packages by its dotted name."""
    paths = [path for package in ("matrixgen", "agent") for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}


def test_both_packages_are_looked_at() -> None:
    """The walk finds both packages and their command lines, so that no green comes from an empty list."""
    assert {"matrixgen", "agent"} == {name.split(".")[0] for name in modules()}
    assert any(name.startswith("matrixgen.cli") for name in modules())
    assert any(name.startswith("agent.cli") for name in modules())


@pytest.mark.parametrize("module", modules())
def test_imports_run_one_way(module: str) -> None:
    """No module imports against the direction of the house, or a heavy library where it must not."""
    assert violations(module, modules()[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("matrixgen.plan", "import agent", "matrixgen imports agent"),
        ("matrixgen.plan", "from agent.errors import AgentError", "matrixgen imports agent.errors"),
        ("matrixgen.plan", "def f():\n    from agent import errors", "matrixgen imports agent.errors"),
        ("matrixgen.plan", "if TYPE_CHECKING:\n    from agent.lanes import chain", "matrixgen imports agent.lanes"),
        ("matrixgen.plan", "import importlib\nimportlib.import_module('agent.lanes')", "matrixgen imports agent.lanes"),
        ("matrixgen.plan", "__import__('agent')", "matrixgen imports agent"),
        *(("matrixgen.plan", f"import {name}", f"matrixgen may not use {name}") for name in HEAVY),
        ("matrixgen.plan", "def f():\n    import numpy as np", "matrixgen may not use numpy"),
        ("matrixgen.plan", "import urllib.request", "matrixgen is pure"),
        *(("matrixgen.keys", f"import {name}", "matrixgen is pure") for name in sorted(IMPURE)),
        ("agent.engine.session", "from agent.lanes import chain", "engine imports lanes"),
        ("agent.engine.session", "from ..lanes.chain import run", "engine imports lanes"),
        ("agent.engine.session", "from .. import lanes", "engine imports lanes"),
        ("agent.engine.session", "from agent.twin.recipe import Recipe", "engine imports twin"),
        ("agent.errors", "from agent.engine import session", "errors imports engine"),
        ("agent.lanes.chain", "from agent.certify import run", "lanes imports certify"),
        ("agent.certify", "from agent.cli import main", "certify imports cli"),
        ("agent.certify", "from agent.gate import decide", "certify imports gate"),
        ("agent.gate", "from agent.lanes.chain import run", "gate imports lanes"),
        ("agent.novelty.thing", "import json", "layer 'novelty' has no row"),
        *(("agent.cli", f"import {name}", f"cli imports {name} at module level") for name in HEAVY),
        ("agent.cli", "try:\n    import numpy\nexcept ImportError:\n    pass", "cli imports numpy at module level"),
        ("agent.cli", "class A:\n    import numpy", "cli imports numpy at module level"),
        ("agent.certify", "import rich.table", "certify imports rich at module level"),
        ("agent.lanes.chain", "import llama_cpp", "lanes imports llama_cpp at module level"),
    ],
)
def test_a_wrong_import_is_caught(module: str, source: str, fault: str) -> None:
    """Every kind of wrong import, wherever it stands in a module, is named."""
    assert any(fault in line for line in violations(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("matrixgen.plan", "import json\nfrom matrixgen.family import Family\nimport click"),
        ("matrixgen.cli", "import subprocess"),
        (
            "agent.lanes.chain",
            "from agent.engine.session import Session\nfrom matrixgen.plan import Leg\nimport numpy as np",
        ),
        ("agent.cli.certify", "def f():\n    import rich"),
        ("agent.engine.session", "from .graph import trace\nfrom ..errors import AgentError"),
        ("agent.cli", "if TYPE_CHECKING:\n    import numpy"),
    ],
)
def test_a_right_import_is_let_through(module: str, source: str) -> None:
    """The rules name no fault where there is none."""
    assert violations(module, source) == []


def test_the_table_has_no_cycle() -> None:
    """The layers of agent can be put in an order, so that no two of them need each other."""
    rest = dict(AGENT_MAY_IMPORT)
    while rest:
        free = [name for name, needs in rest.items() if not needs & rest.keys()]
        assert free, f"a cycle among {sorted(rest)}"
        rest = {name: needs for name, needs in rest.items() if name not in free}


@pytest.mark.parametrize("module", ["matrixgen.cli.group", "agent.cli"])
def test_a_command_line_loads_nothing_heavy(module: str) -> None:
    """Importing a command line, which `--help` does, loads none of the heavy libraries."""
    code = f"import sys, {module}; print(*sorted(set(sys.argv[1:]) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code, *HEAVY], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


def test_every_library_is_declared() -> None:
    """A library that a module imports, at any level, is a dependency that pyproject.toml declares for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = {
        requirement.split(">")[0].split("=")[0].lower().replace("_", "-")
        for requirement in [*project["dependencies"], *extras["agent"], *extras["engine"]]
    }
    used = {
        DISTRIBUTION.get(top, top).replace("_", "-")
        for name, path in modules().items()
        for item in imports_of(name, path.read_text(encoding="utf-8"))
        if (top := item.name.split(".")[0]) not in {"agent", "matrixgen", *sys.stdlib_module_names}
    }
    assert used
    assert used - declared == set()
