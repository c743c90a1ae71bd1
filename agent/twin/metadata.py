"""Writes a recipe's metadata, with or without tensors, as a GGUF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.twin.recipe import MetaValue, Recipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# What llama.cpp names without an architecture, and the lists that it reads as numbers of 64 bits.
_OF_NO_ARCHITECTURE = "xielu."
_WIDE_LISTS = (".ple.layer_multipliers", ".ple.head_offsets", ".ple.head_vocab_sizes")


# llama.cpp's own tokenizer for models without text, and what a llama.cpp that does not know it has in its place
TOKENIZERS = ("test", "none")


@dataclass(frozen=True)
class Split:
    """One file of several: its number from 0 on, how many there are, and the tensors in all of them (`split.*`)."""

    number: int
    count: int
    n_tensors: int


def metadata_of(recipe: Recipe, tokenizer: str = TOKENIZERS[0]) -> dict[str, MetaValue]:
    """All keys of the twin's header but `general.architecture`, in the order in which they are written."""
    entries: dict[str, MetaValue] = {
        "general.type": "model",
        "general.name": "twin",  # not the architecture: llama.cpp changes tokens of models whose name holds that of a phi
        f"{recipe.architecture}.block_count": recipe.n_layer,
        f"{recipe.architecture}.vocab_size": recipe.vocabulary,
    }
    entries.update({_full_key(recipe.architecture, key): value for key, value in recipe.metadata.items()})
    entries["tokenizer.ggml.model"] = tokenizer
    entries["tokenizer.ggml.tokens"] = [f"tok_{index}" for index in range(recipe.vocabulary)]
    entries["tokenizer.ggml.scores"] = [0.0] * recipe.vocabulary
    return entries


def write_gguf(
    path: Path,
    recipe: Recipe,
    tensors: Iterable[tuple[str, NDArray[np.float32 | np.int32]]] = (),
    tokenizer: str = TOKENIZERS[0],
    split: Split | None = None,
) -> None:
    """Writes one GGUF: the recipe's metadata, then the tensors in the given order.

    Of several files only the first has the recipe's metadata, as `llama-gguf-split` writes them.

    Args:
        path: the file, overwritten.
        recipe: whose metadata is written.
        tensors: name and data; a data array's shape is the reverse of GGML's.
        tokenizer: one of `TOKENIZERS`.
        split: which of several files it is.
    """
    import gguf

    writer = gguf.GGUFWriter(path, recipe.architecture)
    if split is None or split.number == 0:
        _add_entries(writer, metadata_of(recipe, tokenizer))
    if split is not None:
        writer.add_uint16("split.no", split.number)
        writer.add_uint16("split.count", split.count)
        writer.add_int32("split.tensors.count", split.n_tensors)
    for name, data in tensors:
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _full_key(architecture: str, key: str) -> str:
    return key if key.startswith(_OF_NO_ARCHITECTURE) else f"{architecture}.{key}"


def _add_entries(writer: Any, entries: Mapping[str, MetaValue]) -> None:
    from gguf import GGUFValueType

    for key, value in entries.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            (writer.add_uint32 if value >= 0 else writer.add_int32)(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif key.endswith(_WIDE_LISTS):
            writer.add_key_value(key, list(value), GGUFValueType.ARRAY, sub_type=GGUFValueType.UINT64)
        else:
            writer.add_array(key, list(value))
