"""Which part of a package owns a tensor. Names decide, by the rule of the package format; every tensor has one owner."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.header.reader import TensorInfo


class Shared(StrEnum):
    """The parts that belong to no layer."""

    METADATA = "metadata"
    EMBEDDINGS = "embeddings"
    OUTPUT = "output"


Owner = int | Shared
"""A part by what it owns: the number of a layer, or a shared part."""

TOKEN_EMBEDDINGS = "token_embd.weight"  # noqa: S105 - not a password
OUTPUT_MATRIX = "output.weight"

_EMBEDDINGS = frozenset({TOKEN_EMBEDDINGS, "per_layer_token_embd.weight"})
_OUTPUT = frozenset({OUTPUT_MATRIX, "output.bias", "output_norm.weight", "output_norm.bias"})


def owner_of(tensor: TensorInfo) -> Owner:
    """The part that owns a tensor.

    Whatever `blk.N.` names goes with layer N: its experts, its router, its share of a prediction (MTP) head. What is neither
    of a layer nor of the two ends, such as rope factors or the norm of the embeddings, is read by every stage and so
    belongs to the metadata part, which every stage takes.
    """
    layer = tensor.layer
    if layer is not None:
        return layer
    if tensor.name in _EMBEDDINGS:
        return Shared.EMBEDDINGS
    return Shared.OUTPUT if tensor.name in _OUTPUT else Shared.METADATA


def words(owner: Owner) -> str:
    """For messages: `layer 3`, `shared embeddings`."""
    return f"shared {owner}" if isinstance(owner, Shared) else f"layer {owner}"
