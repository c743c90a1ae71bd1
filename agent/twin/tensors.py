"""Asks llama.cpp which tensors a model with the given metadata has. Runs as a child: ``python -m agent.twin.tensors META OUT``.

`llama_model_init_from_user` builds a model without a file and calls back for the data of each tensor; here only names, shapes
and types are kept. A violated assertion in native code ends this process and nothing else.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from agent.binding.ggml import GgmlTensor, GgufInitParams
from agent.binding.load import load_binding
from agent.errors import AgentError


def list_tensors(metadata: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape (GGML's order, trailing ones dropped) of every tensor that llama.cpp would read for this metadata.

    Raises:
        RuntimeError: llama.cpp refused the metadata; its reason is in the log on standard error.
        EngineUnavailable, LayoutInvalid: llama.cpp cannot be loaded.
    """
    binding = load_binding()
    llama, ggml = binding.llama, binding.ggml
    shapes: dict[str, tuple[int, ...]] = {}

    def record(tensor: int, _user_data: object) -> None:
        head = GgmlTensor.from_address(tensor)
        shapes[ggml.ggml_get_name(tensor).decode()] = tuple(head.ne[: ggml.ggml_n_dims(tensor)])

    @llama.llama_log_callback  # type: ignore[untyped-decorator]
    def log(level: int, text: bytes, _user_data: object) -> None:
        if level >= llama.GGML_LOG_LEVEL_WARN if hasattr(llama, "GGML_LOG_LEVEL_WARN") else level in (3, 4):
            sys.stderr.write(text.decode(errors="replace"))

    llama.llama_log_set(log, ctypes.c_void_p(0))
    llama.llama_backend_init()
    gguf = ggml.gguf_init_from_file(str(metadata).encode(), GgufInitParams(True, None))
    if not gguf:
        raise RuntimeError(f"{metadata} is not a GGUF that llama.cpp reads")
    params = llama.llama_model_default_params()
    params.n_gpu_layers = 0
    callback = llama.llama_model_set_tensor_data_t(record)
    model = llama.llama_model_init_from_user(gguf, callback, None, params)
    if not model:
        raise RuntimeError("llama.cpp refused the metadata")
    llama.llama_model_free(model)
    ggml.gguf_free(gguf)
    return sorted(shapes.items())


def main(arguments: list[str]) -> int:
    """Writes the tensors of the metadata GGUF `arguments[0]` as JSON to `arguments[1]`."""
    metadata, out = (Path(argument) for argument in arguments)
    try:
        tensors = list_tensors(metadata)
    except (RuntimeError, AgentError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    out.write_text(json.dumps(tensors), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
