"""Twins of projectors: tiny random vision encoders that libmtmd loads beside the twin of a language model.

A projector is written tensor by tensor, since libmtmd names none by itself: names and shapes are those of its loader
(`tools/mtmd/clip.cpp`) and of the graphs in `tools/mtmd/models/`. A pass with one shows that an image goes through the
library, with the positions and the attention of the family, into the split; it says nothing about a real encoder's weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from agent.errors import NoRecipe
from agent.twin.layout import Shape
from agent.twin.recipe import MetaValue
from agent.twin.weights import fill

_WIDTH, _FEED_FORWARD, _HEADS, _PATCH, _SIDE = 32, 64, 2, 4, 32
_GRID = _SIDE // _PATCH
_MERGED = 4 * _WIDTH  # four patches make one vector
_LAYER_NORM = re.compile(r"\b(?=(post_)?ln\d?\.weight$)")

Tensors = dict[str, Shape]


def _encoder(layers: int, *, fused: bool = False) -> Tensors:
    """A vision transformer: patches of an image, then `layers` blocks."""
    tensors: Tensors = {"v.patch_embd.weight": (_PATCH, _PATCH, 3, _WIDTH)} | _norm("v.post_ln")
    for layer in range(layers):
        block = f"v.blk.{layer}"
        tensors |= _norm(f"{block}.ln1") | _norm(f"{block}.ln2")
        for name, width in {"attn_qkv": 3 * _WIDTH}.items() if fused else dict.fromkeys(_QKV, _WIDTH).items():
            tensors |= _linear(f"{block}.{name}", _WIDTH, width)
        tensors |= _linear(f"{block}.attn_out", _WIDTH, _WIDTH)
        tensors |= _linear(f"{block}.ffn_up", _WIDTH, _FEED_FORWARD)
        tensors |= _linear(f"{block}.ffn_down", _FEED_FORWARD, _WIDTH)
    return tensors


_QKV = ("attn_q", "attn_k", "attn_v")
_POSITIONS: Tensors = {"v.patch_embd.bias": (_WIDTH,), "v.position_embd.weight": (_WIDTH, _GRID**2)}
_SECOND_FRAME: Tensors = {"v.patch_embd.weight.1": (_PATCH, _PATCH, 3, _WIDTH)}


def _linear(name: str, inputs: int, outputs: int) -> Tensors:
    return {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int = _WIDTH) -> Tensors:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _merger(n_embd: int) -> Tensors:
    return _linear("mm.0", _MERGED, _MERGED) | _linear("mm.2", _MERGED, n_embd)


def _qwen2vl(n_embd: int, _deepstack: int) -> Tensors:
    return _encoder(2) | _SECOND_FRAME | _merger(n_embd)


def _qwen3vl(n_embd: int, deepstack: int) -> Tensors:
    tensors = _encoder(max(2, deepstack), fused=True) | _POSITIONS | _SECOND_FRAME | _merger(n_embd)
    for layer in range(deepstack):
        part = f"v.deepstack.{layer}"
        tensors |= _norm(f"{part}.norm", _MERGED)
        tensors |= _linear(f"{part}.fc1", _MERGED, _MERGED) | _linear(f"{part}.fc2", _MERGED, n_embd)
    return tensors


def _gemma3(n_embd: int, _deepstack: int) -> Tensors:
    return (
        _encoder(2)
        | _POSITIONS
        | {"mm.input_projection.weight": (n_embd, _WIDTH), "mm.soft_emb_norm.weight": (_WIDTH,)}
    )


def _hunyuan_vl(n_embd: int, _deepstack: int) -> Tensors:
    wide, wider = 2 * _WIDTH, 4 * _WIDTH
    return (
        _encoder(2)
        | _POSITIONS
        | {"mm.0.weight": (2, 2, _WIDTH, wide), "mm.0.bias": (wide,)}
        | {"mm.2.weight": (1, 1, wide, wider), "mm.2.bias": (wider,)}
        | _linear("mm.model.fc", wider, n_embd)
        | {"mm.pre_norm.weight": (_WIDTH,), "mm.post_norm.weight": (n_embd,)}
        | {"mm.image_begin": (n_embd,), "mm.image_end": (n_embd,), "v.image_newline": (wider,)}
    )


# architecture of the language model -> projector type, its tensors, and keys that only this type has
_PROJECTORS: Mapping[str, tuple[str, Callable[[int, int], Tensors], Mapping[str, MetaValue]]] = {
    "qwen2vl": ("qwen2vl_merger", _qwen2vl, {}),
    "qwen3vl": ("qwen3vl_merger", _qwen3vl, {}),
    "qwen3vlmoe": ("qwen3vl_merger", _qwen3vl, {}),
    "gemma3": ("gemma3", _gemma3, {"projector.scale_factor": 2}),
    "hunyuan_vl": ("hunyuanvl", _hunyuan_vl, {"image_min_pixels": _PATCH**2 * 4, "image_max_pixels": _SIDE**2 * 4}),
}


def has_projector(architecture: str) -> bool:
    """True if a twin of a projector can be made for language models of this architecture."""
    return architecture in _PROJECTORS


def write_projector(path: Path, architecture: str, n_embd: int, n_embd_inp: int) -> None:
    """Write the twin of a projector for a language model of this architecture and these widths.

    Args:
        path: the GGUF, overwritten.
        architecture: of the language model.
        n_embd: its hidden width.
        n_embd_inp: the width of a row of its embedding input; what is beyond `n_embd` is for its deepstack layers.

    Raises:
        NoRecipe: none is known for the architecture.
    """
    import gguf

    if architecture not in _PROJECTORS:
        raise NoRecipe(f"no twin of a projector for {architecture!r}; there are some for {', '.join(_PROJECTORS)}")
    kind, tensors_of, own = _PROJECTORS[architecture]
    tensors = tensors_of(n_embd, n_embd_inp // n_embd - 1)
    layers = len({name.split(".")[2] for name in tensors if name.startswith("v.blk.")})
    numbers: dict[str, MetaValue] = {
        "embedding_length": _WIDTH,
        "feed_forward_length": _FEED_FORWARD,
        "block_count": layers,
        "projection_dim": n_embd,
        "attention.head_count": _HEADS,
        "image_size": _SIDE,
        "patch_size": _PATCH,
        **own,
    }
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("general.type", "mmproj")
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    for key, value in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    for name, shape in tensors.items():
        # the rules of the weights know a norm by that word
        writer.add_tensor(name, fill(_LAYER_NORM.sub("norm_", name), shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
