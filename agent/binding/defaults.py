"""Default parameters of llama.cpp, which are known values: read at the wrong places they come back as something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

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


class WrongDefault(NamedTuple):
    """A default that came back as another value than llama.cpp sets."""

    struct: str
    field: str
    value: Any
    known: Any

    def __str__(self) -> str:
        return f"the default of {self.field} is read back as {self.value!r}; llama.cpp sets {self.known!r}"


def read_defaults(module: ModuleType) -> dict[str, dict[str, Any]]:
    """Default parameters by struct and field; None for a null pointer, `a pointer` for any other."""
    found: dict[str, dict[str, Any]] = {}
    for struct, function in _FUNCTIONS.items():
        params = getattr(module, function)()
        found[struct] = {name: _plain(getattr(params, name)) for name, *_ in params._fields_}
    return found


def wrong_defaults(values: Mapping[str, Mapping[str, Any]]) -> Iterator[WrongDefault]:
    """Known defaults that came back as something else."""
    for struct, known in KNOWN_DEFAULTS.items():
        for field, expected in known.items():
            value = values.get(struct, {}).get(field, expected)
            if value != expected or type(value) is not type(expected):
                yield WrongDefault(struct, field, value, expected)


def count_defaults(values: Mapping[str, Mapping[str, Any]]) -> int:
    """How many of `values` are known."""
    return sum(field in values.get(struct, {}) for struct, known in KNOWN_DEFAULTS.items() for field in known)


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value
    return "a pointer" if value else None
