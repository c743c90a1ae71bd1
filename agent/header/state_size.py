"""How many bytes of state a model keeps, by arithmetic from its metadata: an oracle that needs no run.

Widths as in llama.cpp's `llama-hparams.cpp` (`n_embd_r`, `n_embd_s`, `n_embd_k_gqa`, `n_embd_v_gqa`); the frame of the
recurrent blob as in `llama-memory-recurrent.cpp` (`state_write`), that of compressed caches as in `llama-kv-cache-dsv4.cpp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.header import architectures as arch
from agent.header.layers import (
    COMPRESS_RATIOS,
    blocks_of_layers,
    compress_ratios,
    head_counts_kv,
    layer_kinds_from_metadata,
)
from agent.header.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.header.model import Header
    from agent.layer_kind import LayerKind

BLOB_BYTES = 28
"""A blob's frame: magic, sequence, cells, position, sequences of the cell, transposed, layers; 4 bytes each."""
CELL_BYTES = 12
"""A cell of an exported KV cache: its position, the number of its sequences, one sequence; 4 bytes each."""
LAYER_BYTES = 24
"""A layer's frame: type (4) and row size (8), once for each of its two states."""
_ROWS_BYTES = 12
"""The frame of a layer's rows: type (4) and row size (8)."""
_TENSOR_BYTES = 28
"""The frame of a compressor's tensor: type (4), width, rows and row size (8 each)."""
F32_BYTES = 4
F16_BYTES = 2

_RWKV = frozenset({"rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_SHORTCONV = frozenset({"lfm2", "lfm2moe"})
_KDA = frozenset({"bailingmoe3", "glm5-next", "kimi-k3", "kimi-linear"})
_LIGHTNING = frozenset({"minimax-01"})
_GROUPED_SSM = frozenset(
    {
        "falcon-h1", "granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe", "plamo2", "qwen35", "qwen35moe",
        "qwen3next", "qwen4exp",
    }
)  # fmt: skip
_SSM = _GROUPED_SSM | {"jamba", "mamba"}
_MLA = frozenset(
    {
        "bailingmoe3", "deepseek2", "deepseek32", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "kimi-k3",
        "kimi-linear", "mistral4",
    }
)  # fmt: skip
"""Keep a latent instead of keys and values, where the file has the MLA head lengths."""

_KV_FROM_START = {"gemma3n": 20}

_ROUTERS = frozenset({"graniteswitch"})
"""Choose an adapter by one head of attention before layer 0, whose key and value are kept beside those of the layers."""


def recurrent_widths(header: Header) -> tuple[int, int]:
    """Return (n_r, n_s): f32 values of the rolling and of the recurrent state of one recurrent layer and sequence.

    Raises:
        HeaderInvalid: a needed key is missing or no number; `bad_value` for an architecture without a known layout.
    """
    name = header.architecture
    if name in _RWKV:
        width = _uint(header, "embedding_length")
        return _uint(header, "token_shift_count", 2) * width, width * _uint(header, "wkv.head_size")
    if name in _SHORTCONV:
        return _uint(header, "embedding_length") * max(_uint(header, "shortconv.l_cache") - 1, 0), 0
    if name in _KDA:
        head, heads = _uint(header, "kda.head_dim"), _head_count(header)
        kernel = _uint(header, "ssm.conv_kernel")
        return 3 * (kernel - 1 if kernel else 3) * heads * head, head * head * heads
    if name in _LIGHTNING:
        head = _head_lengths(header)[0]
        return 0, head * head * _head_count(header)
    if name in _SSM:
        inner, state = _uint(header, "ssm.inner_size"), _uint(header, "ssm.state_size")
        groups = _uint(header, "ssm.group_count") if name in _GROUPED_SSM else 0
        return max(_uint(header, "ssm.conv_kernel") - 1, 0) * (inner + 2 * groups * state), state * inner
    return header.fail(Verdict.BAD_VALUE, f"the recurrent layout of the architecture {name} is unknown")


def recurrent_bytes(header: Header, layers: Iterable[int] | None = None) -> int:
    """Return the size of one sequence's exported recurrent state (flag `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`), framed.

    With compressed caches llama.cpp writes the window of plain keys into the same export: see `window_bytes`.

    Args:
        header: the model.
        layers: the layers a stage owns; None for all of the trunk.

    Returns:
        Bytes. 0 for a model without recurrent layers; only the frame for a range that holds none of them.

    Raises:
        HeaderInvalid: as `recurrent_widths`, or the layout is unknown.
    """
    kinds = _kinds(header)
    if not any(kind.recurrent for kind in kinds):
        return 0
    owned = [index for index in _owned(header, layers) if kinds[index].recurrent]
    if header.architecture in arch.COMPRESSED:
        return _compressor_bytes(header, owned)
    rolling, state = recurrent_widths(header)
    extra = sum(_ple_bytes(header, index) for index in owned)
    return BLOB_BYTES + len(owned) * (LAYER_BYTES + F32_BYTES * (rolling + state)) + extra


def kv_page_bytes(
    header: Header, tokens: int, layers: Iterable[int] | None = None, *, bytes_per_value: int = F16_BYTES
) -> int:
    """Return the size of the attention keys and values of `tokens` tokens; 0 for layers that keep none.

    The latent cache of MLA holds keys only. Caches of sparse-attention indexers are not counted, but for those of compressed
    keys, which are kept once for several tokens.

    Args:
        header: the model.
        tokens: tokens in the page.
        layers: the layers a stage owns; None for all of the trunk.
        bytes_per_value: 2 for an f16 cache.

    Raises:
        HeaderInvalid: a needed key is missing or no number, or the layout is unknown.
    """
    if header.architecture in arch.COMPRESSED:
        return bytes_per_value * _compressed_values(header, tokens, _owned(header, layers))
    owners = kv_owners(header)
    heads, blocks = head_counts_kv(header), blocks_of_layers(header)
    owned = _owned(header, layers)
    values = sum(_head_lengths(header)) if header.architecture in _ROUTERS and 0 in owned else 0
    for index in owned:
        if owners[index]:
            key, value = _head_lengths(header, swa=_is_swa(header, index))
            values += heads[blocks[index]] * (key if _is_mla(header) else key + value)
    return tokens * values * bytes_per_value


def window_bytes(header: Header, tokens: int, sequences: int) -> int:
    """Return what an export of recurrent state holds besides: with compressed caches the window of plain f16 keys, else nothing.

    Args:
        header: the model.
        tokens: tokens in the exported sequence.
        sequences: sequences that the context has room for; each has a stream of its own.

    Raises:
        HeaderInvalid: a needed key is missing or no number.
    """
    if header.architecture not in arch.COMPRESSED:
        return 0
    cells, layers = min(tokens, _uint(header, "attention.sliding_window")), header.trunk_layers
    rows = layers * (_ROWS_BYTES + cells * F16_BYTES * _head_lengths(header)[0])
    return 4 + 4 * sequences + 8 + cells * CELL_BYTES + rows


def kv_owners(header: Header) -> tuple[bool, ...]:
    """Return for each trunk layer whether it has keys and values of its own; some attend to those of an earlier layer.

    Raises:
        HeaderInvalid: as `layer_kinds_from_metadata`, or the layout is unknown.
    """
    kinds = _kinds(header)
    first_without = _KV_FROM_START.get(header.architecture, len(kinds))
    if header.architecture == "gemma4":
        first_without = header.block_count - _uint(header, "attention.shared_kv_layers", 0)
    return tuple(kind.attention and index < first_without for index, kind in enumerate(kinds))


def _compressor_bytes(header: Header, layers: list[int]) -> int:
    """Return the size of what the compressors of `layers` have not compressed yet, in the frames of `llama_dsv4_comp_state`."""
    key, indexer, ratios = (
        _head_lengths(header)[0],
        _uint(header, "attention.indexer.key_length"),
        compress_ratios(header),
    )
    few, many = COMPRESS_RATIOS
    # the windows of the smaller ratio overlap, so two are kept, of twice the width: one for the keys, one for the indexer's
    values = {few: (2 * few * 2 * key, 2 * few * 2 * indexer), many: (many * key,)}
    states = [count for layer in layers for count in values[ratios[layer]]]
    per_state = 4 + 2 * _TENSOR_BYTES
    return 20 + 3 * 24 + sum(per_state + 2 * F32_BYTES * count for count in states)


def _compressed_values(header: Header, tokens: int, layers: list[int]) -> int:
    """Return how many values the caches of `layers` keep for `tokens` tokens: plain keys, compressed ones, the indexer's."""
    key, indexer, ratios = (
        _head_lengths(header)[0],
        _uint(header, "attention.indexer.key_length"),
        compress_ratios(header),
    )
    few, many = COMPRESS_RATIOS
    compressed = {0: 0, few: tokens // few * (key + indexer), many: tokens // many * key}
    return sum(tokens * key + compressed[ratios[layer]] for layer in layers)


def _kinds(header: Header) -> tuple[LayerKind, ...]:
    kinds = layer_kinds_from_metadata(header)
    if kinds is None:
        header.fail(Verdict.BAD_VALUE, f"the state layout of the architecture {header.architecture} is unknown")
    return kinds


def _owned(header: Header, layers: Iterable[int] | None) -> list[int]:
    n = len(blocks_of_layers(header))
    owned = sorted(set(range(n) if layers is None else layers))
    if owned and not 0 <= owned[0] <= owned[-1] < n:
        raise ValueError(f"layers {owned[0]} to {owned[-1]} are asked of a model of {n}")
    return owned


def _uint(header: Header, suffix: str, default: int | None = None) -> int:
    return header.get_uint(header.key(suffix), default)


def _head_count(header: Header) -> int:
    return header.get_per_layer(header.key("attention.head_count"), header.block_count, 0)[0]


def _head_lengths(header: Header, *, swa: bool = False) -> tuple[int, int]:
    """Return the length of a key and of a value head; llama.cpp takes the default from the heads of layer 0."""
    heads = _head_count(header)
    if heads == 0:
        return 0, 0
    default = _uint(header, "embedding_length") // heads
    key, value = _uint(header, "attention.key_length", default), _uint(header, "attention.value_length", default)
    if not swa:
        return key, value
    return _uint(header, "attention.key_length_swa", key), _uint(header, "attention.value_length_swa", value)


def _is_swa(header: Header, layer: int) -> bool:
    """Say whether a layer has the head lengths of sliding windows; only asked where they differ from the others."""
    if _head_lengths(header, swa=True) == _head_lengths(header):
        return False
    pattern = header.metadata.get(header.key("attention.sliding_window_pattern"))
    if not isinstance(pattern, tuple) or layer >= len(pattern):
        header.fail(Verdict.BAD_VALUE, "its sliding-window layers have other heads, but are not listed")
    return bool(pattern[layer])


def _is_mla(header: Header) -> bool:
    lengths = [_uint(header, f"attention.{which}_length_mla", 0) for which in ("key", "value")]
    return header.architecture in _MLA and all(lengths)


def _ple_bytes(header: Header, layer: int) -> int:
    """Return the size of the n-gram convolution history of a Qwen4 layer that has one: row size (8) and values."""
    listed = header.metadata.get(header.key("ple.layers"))
    if header.architecture != "qwen4exp" or not isinstance(listed, tuple) or layer not in listed:
        return 0
    kernel, ngram = _uint(header, "ple.conv_kernel"), _uint(header, "ple.ngram_size")
    streams, width = _uint(header, "hyper_connection.count"), _uint(header, "embedding_length")
    return 8 + F32_BYTES * (kernel - 1) * ngram * streams * width
