"""A GGUF model loaded by llama.cpp onto one device."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agent.engine.devices import Device
from agent.engine.library import load_library
from agent.engine.resource import Resource
from agent.errors import ModelRefused

_ALL_LAYERS = 999

# enum llama_rope_type (llama.h): rotation by several axes of position, and its interleaved form
_M_ROPE = (8, 40)


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What llama.cpp says of a loaded model.

    Attributes:
        architecture: `general.architecture`.
        n_layer: layers of the trunk, without prediction (MTP) layers.
        n_embd: width of the hidden state, in elements.
        n_embd_inp: width of an embedding that a decode is given in place of a token id; more than `n_embd` with deepstack.
        position_axes: positions that such an embedding has: four with M-RoPE, else one.
        n_vocab: size of the vocabulary.
        recurrent, hybrid, encoder: llama.cpp's own classification.
    """

    architecture: str
    n_layer: int
    n_embd: int
    n_embd_inp: int
    position_axes: int
    n_vocab: int
    recurrent: bool
    hybrid: bool
    encoder: bool


class Spare(Protocol):
    """Something on a model that waits for its next use."""

    def free(self) -> None:
        """Give back its memory."""


class Model(Resource):
    """A loaded model; free it with `close` or use it as a context manager.

    Attributes:
        spares: contexts that wait for their next use, see `agent.engine.spare`; freed with the model.
    """

    def __init__(self, path: Path, device: Device) -> None:
        """Load `path` whole onto `device`.

        Raises:
            ModelRefused: llama.cpp returned no model. Its own words are on standard error.
        """
        library = load_library()
        self._llama: Any = library.llama
        self.device = device
        params = self._llama.llama_model_default_params()
        if device.is_cpu:
            # an empty list: no other device may take a part of the work, whatever the build offers
            devices = (ctypes.c_void_p * 1)(None)
            params.n_gpu_layers = 0
        else:
            devices = (ctypes.c_void_p * 2)(device.handle, None)
            params.n_gpu_layers = _ALL_LAYERS
        params.devices = ctypes.cast(devices, ctypes.c_void_p)
        self._devices = devices
        handle = self._llama.llama_model_load_from_file(str(path).encode(), params)
        if not handle:
            raise ModelRefused(f"llama.cpp {library.version} does not load {path.name}: see its message above")
        self.handle: Any = handle
        self.path = path
        self.facts = self._read_facts()
        self.spares: list[Spare] = []

    def _read_facts(self) -> ModelFacts:
        llama, handle = self._llama, self.handle
        vocab = llama.llama_model_get_vocab(handle)
        return ModelFacts(
            architecture=self.metadata("general.architecture") or "",
            n_layer=llama.llama_model_n_layer(handle),
            n_embd=llama.llama_model_n_embd(handle),
            n_embd_inp=llama.llama_model_n_embd_inp(handle),
            position_axes=4 if llama.llama_model_rope_type(handle) in _M_ROPE else 1,
            n_vocab=llama.llama_vocab_n_tokens(vocab),
            recurrent=bool(llama.llama_model_is_recurrent(handle)),
            hybrid=bool(llama.llama_model_is_hybrid(handle)),
            encoder=bool(llama.llama_model_has_encoder(handle)),
        )

    def metadata(self, key: str) -> str | None:
        """A metadata value as text, or None where the file has no such key."""
        buffer = ctypes.create_string_buffer(256)
        length = self._llama.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return None if length < 0 else buffer.value.decode("utf-8", "replace")

    def free_spares(self) -> None:
        """Free what waits; whoever wants it next makes it anew."""
        while self.spares:
            self.spares.pop().free()

    def close(self) -> None:
        """Free the model. Sessions on it must be closed before."""
        self.free_spares()
        if self.handle:
            self._llama.llama_model_free(self.handle)
            self.handle = None
