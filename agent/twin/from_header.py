"""A recipe with the layers of a real model: the pattern is read off its header, the widths are those of the architecture's twin.

So the splits of a model of hundreds of gigabytes can be checked on a laptop, from a header of some megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.header.layers import layer_kinds_from_metadata
from agent.header.reader import Header, Value
from agent.layer_kind import LayerKind
from agent.twin.catalog import FAMILY_RECIPES, recipe_for
from agent.twin.recipe import MetaValue, Recipe

_LETTERS = {
    LayerKind.ATTENTION: "A",
    LayerKind.RECURRENT: "R",
    LayerKind.BOTH: "B",
    LayerKind.NEITHER: "N",
}

# scalars that say which layer is of which kind; they are taken as they are
_LAYOUT_SCALARS = (
    "attention.shared_kv_layers",
    "attention.sliding_window_pattern",
    "decoder_block_count",
    "expert_shared_count",
    "full_attention_interval",
    "hash_layer_count",
    "hrm.h_cycles",
    "hrm.l_cycles",
    "hrm.layers_per_stack",
    "interleave_moe_layer_step",
    "leading_dense_block_count",
    "moe_every_n_layers",
    "num_loops",
)
# numbers a layer that are no sizes: llama.cpp knows certain ones only
_LAYOUT_LISTS = ("attention.compress_ratios",)
# present or absent as in the model; the twin's own size where it is present
_OPTIONAL = ("attention.sliding_window",)


def recipe_of_header(header: Header) -> Recipe:
    """The twin of the model that `header` describes: its layers, windows, sharing, experts' places and files, in tiny widths.

    Layers for next-token prediction are left out: no cut of the trunk touches them.

    Raises:
        NoRecipe: there is no twin of this architecture.
        HeaderInvalid: the header contradicts itself.
    """
    base = _nearest(header)
    n_layer = header.trunk_layers
    kinds = layer_kinds_from_metadata(header)
    metadata = {name: _resized(value, base.n_layer, n_layer) for name, value in base.metadata.items()}
    for name in {*metadata, *_suffixes(header)}:
        value = header.metadata.get(header.key(name))
        if isinstance(value, tuple) and len(value) == header.block_count:
            sized = value[:n_layer] if name in _LAYOUT_LISTS else _shrunk(value[:n_layer], base.metadata.get(name))
            metadata[name] = sized
        elif name in _LAYOUT_SCALARS and isinstance(value, bool | int):
            metadata[name] = value
        elif name in (*_LAYOUT_SCALARS, *_OPTIONAL) and value is None:
            metadata.pop(name, None)
    metadata.pop("nextn_predict_layers", None)
    if "block_count" in base.metadata:
        metadata["block_count"] = n_layer
    return replace(
        base,
        n_layer=len(kinds) if kinds else n_layer,
        metadata=metadata,
        pattern="".join(_LETTERS[kind] for kind in kinds) if kinds else base.pattern[:1] * n_layer,
        source=f"header of {header.path.name}",
        notes=f"{n_layer} layers as in the model; widths as in the twin of {header.architecture}",
        shards=_shards(header),
    )


def _shards(header: Header) -> tuple[tuple[str, ...], ...]:
    if len(header.shards) == 1:
        return ()
    files: list[list[str]] = [[] for _ in header.shards]
    for tensor in header.tensors:
        files[tensor.shard].append(tensor.name)
    return tuple(map(tuple, files))


def _nearest(header: Header) -> Recipe:
    """Of all recipes of the architecture, the one whose keys are most like the header's."""
    known = set(_suffixes(header))
    candidates = [recipe_for(header.architecture)]
    candidates += [recipe for recipe in FAMILY_RECIPES.values() if recipe.architecture == header.architecture]
    return min(candidates, key=lambda recipe: len(known ^ set(recipe.metadata)))


def _suffixes(header: Header) -> list[str]:
    prefix = header.key("")
    return [key.removeprefix(prefix) for key in header.metadata if key.startswith(prefix)]


def _resized(value: MetaValue, old: int, new: int) -> MetaValue:
    """A list with one item a layer, for another number of layers: its largest item everywhere (the header may say more)."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != old:
        return value
    return (max(value),) * new


def _shrunk(real: Value, twin: MetaValue | None) -> MetaValue:
    """Numbers a layer in the twin's sizes: zeros stay zeros, equal ones stay equal, larger ones stay larger where possible."""
    if not isinstance(real, tuple):
        raise TypeError("numbers a layer are a tuple")
    if all(isinstance(item, bool) for item in real) or twin is None:
        return tuple(real)
    largest = max(twin) if isinstance(twin, Sequence) and not isinstance(twin, str) else twin
    if not isinstance(largest, int):
        return tuple(real)
    sizes = sorted({item for item in real if item}, reverse=True)
    sized = {size: max(1, largest >> rank) for rank, size in enumerate(sizes)}
    return tuple(sized[item] if item else 0 for item in real)
