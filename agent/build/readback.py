"""What the binding and the libraries say of themselves, asked in a child: a wrong library must not take the agent with it.

A library of another pin loads and answers, with its structs read at the wrong places. Its default parameters are known
values, so reading them back shows the drift without headers and before any model is opened.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.build.compiler import run_tool
from agent.build.findings import Finding
from agent.build.layout import Layout
from agent.errors import EngineUnavailable

# llama_model_default_params and llama_context_default_params of llama.cpp; a field that the binding does not have is skipped.
# Values that the project changes now and then (n_gpu_layers, thread counts) are not among them.
KNOWN_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama_model_params": {
        "devices": None,
        "tensor_buft_overrides": None,
        "split_mode": 1,
        "main_gpu": 0,
        "tensor_split": None,
        "progress_callback": None,
        "progress_callback_user_data": None,
        "kv_overrides": None,
        "vocab_only": False,
        "check_tensors": False,
        "use_extra_bufts": True,
    },
    "llama_context_params": {
        "n_ctx": 512,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_seq_max": 1,
        "rope_scaling_type": -1,
        "pooling_type": -1,
        "attention_type": -1,
        "rope_freq_base": 0.0,
        "rope_freq_scale": 0.0,
        "yarn_ext_factor": -1.0,
        "yarn_orig_ctx": 0,
        "cb_eval": None,
        "cb_eval_user_data": None,
        "type_k": 1,
        "type_v": 1,
        "abort_callback": None,
        "abort_callback_data": None,
        "embeddings": False,
        "offload_kqv": True,
        "no_perf": True,
    },
}
_FUNCTIONS = {
    "llama_model_params": "llama_model_default_params",
    "llama_context_params": "llama_context_default_params",
}
_TIMEOUT_SECONDS = 60
_WHY = "the library has its fields elsewhere than the binding: it would be given other settings than we set"
_FIX = "give libraries of the binding's own pin, or compare with the headers (--llama-src) to see which field moved"


@dataclass(frozen=True, kw_only=True)
class Readback:
    """What a child saw.

    Attributes:
        version: what the library says of itself.
        folder: where it was loaded from.
        layout: the structs as the binding declares them.
        values: default parameters by struct and field; None for a null pointer.
    """

    version: str
    folder: Path
    layout: Layout
    values: Mapping[str, Mapping[str, Any]]


def read_back(libraries: Path | None) -> Readback:
    """Load `libraries` (None: the binding's own) in a child and read the default parameters.

    Raises:
        EngineUnavailable: they do not load, or the child died; the message has its last words.
    """
    override = {"LLAMA_CPP_LIB_PATH": str(libraries)} if libraries else {}
    arguments = [] if libraries else ["own"]
    child = run_tool(
        [sys.executable, "-m", "agent.build.readback", *arguments],
        timeout_seconds=_TIMEOUT_SECONDS,
        environment={"GGML_NO_BACKTRACE": "1", **override},
    )
    lines = child.stdout.splitlines()
    answer = json.loads(lines[-1]) if child.returncode == 0 and lines else {}
    if "layout" not in answer:
        words = answer.get("error") or (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
        died = f"the child that loaded them ended with exit code {child.returncode}: " if child.returncode else ""
        raise EngineUnavailable(f"{libraries or 'the libraries of the binding'}: {died}{words}")
    return Readback(
        version=answer["version"],
        folder=Path(answer["folder"]),
        layout=Layout.from_json(answer["layout"]),
        values=answer["values"],
    )


def check_defaults(values: Mapping[str, Mapping[str, Any]]) -> tuple[int, tuple[Finding, ...]]:
    """How many known defaults were compared, and those that came back as something else."""
    compared = 0
    findings = []
    for struct, known in KNOWN_DEFAULTS.items():
        for field, expected in known.items():
            if field not in values.get(struct, {}):
                continue
            compared += 1
            value = values[struct][field]
            if value != expected or type(value) is not type(expected):
                findings.append(
                    Finding(
                        id="AB010",
                        severity="error",
                        file=struct,
                        line=0,
                        message=f"the default of {field} is read back as {value!r}; llama.cpp sets {expected!r}",
                        why=_WHY,
                        fix=_FIX,
                    )
                )
    return compared, tuple(findings)


def _values(module: ModuleType) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for struct, function in _FUNCTIONS.items():
        params = getattr(module, function)()
        found[struct] = {name: _plain(getattr(params, name)) for name, *_ in params._fields_}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value
    return "a pointer" if value else None


def _answer(own: bool) -> dict[str, Any]:
    import os

    from agent.build.binding import import_binding, layout_of_binding

    if own:
        os.environ.pop("LLAMA_CPP_LIB_PATH", None)
    try:
        module = import_binding()
    except EngineUnavailable as error:
        return {"error": str(error)}
    import llama_cpp

    version = str(llama_cpp.__version__)
    return {
        "version": module.llama_version().decode("utf-8", "replace"),
        "folder": str(Path(module._lib._name).parent),  # noqa: SLF001 - the only place where the binding keeps it
        "layout": layout_of_binding(module, source=f"llama-cpp-python {version}").to_json(),
        "values": _values(module),
    }


if __name__ == "__main__":
    print(json.dumps(_answer("own" in sys.argv[1:])))  # noqa: T201 - the answer to the parent
