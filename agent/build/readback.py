"""What the binding and the libraries say of themselves, asked in a child: a wrong library must not take the agent with it.

A library of another pin loads and answers, with its structs read at the wrong places. Its default parameters are known
values, so reading them back shows the drift without headers and before any model is opened.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.binding.defaults import count_defaults, read_defaults, wrong_defaults
from agent.binding.ggml import declared_tensor
from agent.binding.layout import Layout
from agent.binding.load import VARIABLE, open_binding, require_known
from agent.build.compiler import run_tool
from agent.build.findings import Finding
from agent.errors import AgentError, EngineUnavailable, FunctionMissing, LayoutInvalid, LayoutUnknown

_TIMEOUT_SECONDS = 60
_WHY = "the library has its fields elsewhere than the binding: it would be given other settings than we set"
_FIX = (
    "give the build with its record (docs/build.md), or compare with the headers (--llama-src) to see which field moved"
)
_CAUSES = {cause.__name__: cause for cause in (EngineUnavailable, FunctionMissing, LayoutInvalid, LayoutUnknown)}


@dataclass(frozen=True, kw_only=True)
class Readback:
    """What a child saw.

    Attributes:
        version: what the library says of itself.
        folder: where it was loaded from.
        layout: the structs as the binding declares them.
        followed: structs that lie elsewhere in the build, and are used as its record says.
        missing: functions that the libraries lack and nobody here calls.
        values: default parameters by struct and field, after following; None for a null pointer.
    """

    version: str
    folder: Path
    layout: Layout
    followed: tuple[str, ...]
    missing: tuple[str, ...]
    values: Mapping[str, Mapping[str, Any]]


def read_back(libraries: Path | None) -> Readback:
    """Load `libraries` (None: the binding's own) in a child, as the lanes do, and read the default parameters.

    Raises:
        EngineUnavailable: they do not load, or the child died; the message has its last words.
        FunctionMissing: they lack a function that is used.
        LayoutUnknown: they are of another pin, and no record says how its structs lie.
        LayoutInvalid: their record says that the structs lie elsewhere, and they cannot be followed.
    """
    override = {VARIABLE: str(libraries)} if libraries else {}
    arguments = [] if libraries else ["own"]
    child = run_tool(
        [sys.executable, "-m", "agent.build.readback", *arguments],
        timeout_seconds=_TIMEOUT_SECONDS,
        environment={"GGML_NO_BACKTRACE": "1", **override},
    )
    lines = child.stdout.splitlines()
    answer = json.loads(lines[-1]) if child.returncode == 0 and lines else {}
    if "layout" not in answer:
        if "error" in answer:
            raise _CAUSES.get(answer["cause"], EngineUnavailable)(answer["error"])
        words = (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
        died = f"the child that loaded them ended with exit code {child.returncode}: " if child.returncode else ""
        raise EngineUnavailable(f"{libraries or 'the libraries of the binding'}: {died}{words}")
    return Readback(
        version=answer["version"],
        folder=Path(answer["folder"]),
        layout=Layout.from_json(answer["layout"]),
        followed=tuple(answer["followed"]),
        missing=tuple(answer["missing"]),
        values=answer["values"],
    )


def check_defaults(values: Mapping[str, Mapping[str, Any]]) -> tuple[int, tuple[Finding, ...]]:
    """How many known defaults were compared, and those that came back as something else."""
    findings = tuple(
        Finding(id="AB010", severity="error", file=wrong.struct, line=0, message=str(wrong), why=_WHY, fix=_FIX)
        for wrong in wrong_defaults(values)
    )
    return count_defaults(values), findings


def _answer(own: bool) -> dict[str, Any]:
    import os

    if own:
        os.environ.pop(VARIABLE, None)
    try:
        binding = open_binding()
        require_known(binding)
    except AgentError as error:
        return {"error": str(error), "cause": type(error).__name__}
    source = f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}"
    structs = {**binding.declared.structs, "ggml_tensor": declared_tensor()}
    return {
        "version": binding.version,
        "folder": str(binding.folder),
        "layout": replace(binding.declared, structs=structs, source=source).to_json(),
        "followed": binding.followed,
        "missing": binding.missing,
        "values": read_defaults(binding.llama),
    }


if __name__ == "__main__":
    print(json.dumps(_answer("own" in sys.argv[1:])))  # noqa: T201 - the answer to the parent
