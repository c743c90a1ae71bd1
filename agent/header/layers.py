"""Which layers are attention, recurrent, both or neither: once from the metadata, once from the tensor names.

The first follows llama.cpp's own rules (`load_arch_hparams` of each model); the second knows nothing of architectures.
They are independent, so a file in which they differ is wrong, and nobody has to guess which one to believe.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from agent.header import architectures as arch
from agent.header.limits import MAX_LAYERS
from agent.header.model import Header, SkippedArray, describe
from agent.header.verdicts import Verdict
from agent.layer_kind import LayerKind

if TYPE_CHECKING:
    from collections.abc import Sequence


def layer_kinds_from_metadata(header: Header) -> tuple[LayerKind, ...] | None:
    """Return the kind of each trunk layer; None where the layout is unknown, so that reuse of state must stay off.

    Raises:
        HeaderInvalid: a needed key is missing, of another type or length, or the layers it describes cannot exist.
    """
    name = header.architecture
    known = arch.RECURRENT | arch.HYBRID | arch.LOOPED | arch.DENSE | arch.ENCODER | arch.DIFFUSION
    if name not in known:
        return None
    n = header.trunk_layers
    if name in arch.RECURRENT:
        kinds = (LayerKind.RECURRENT,) * n
    elif name in arch.BOTH:
        kinds = (LayerKind.BOTH,) * n
    elif name in arch.BY_INTERVAL:
        kinds = _by_interval(header)
    elif name in arch.BY_HEAD_COUNT_KV:
        kinds = _by_zero(head_counts_kv(header)[:n], LayerKind.RECURRENT)
    elif name in arch.BY_HEAD_COUNT_KV_AND_FF:
        kinds = _by_zero_and_ff(header)
    elif name in arch.COMPRESSED:
        kinds = tuple(LayerKind.BOTH if ratio else LayerKind.ATTENTION for ratio in compress_ratios(header))
    elif name in arch.LOOPED:
        kinds = (LayerKind.ATTENTION,) * len(blocks_of_layers(header))
    else:
        kinds = _by_zero(head_counts_kv(header)[:n], LayerKind.NEITHER)
    _check_plausible(header, kinds)
    return kinds


def layer_kinds_from_tensors(header: Header) -> tuple[LayerKind, ...]:
    """Return the kind of every layer that has tensors, next-token prediction layers included; () without tensors.

    Raises:
        HeaderInvalid: `bad_layer_map` where a tensor names a layer beyond llama.cpp's limit.
    """
    parts: defaultdict[int, set[str]] = defaultdict(set)
    for tensor in header.tensors:
        layer = tensor.layer
        if layer is None:
            continue
        if layer >= MAX_LAYERS:
            header.fail(Verdict.BAD_LAYER_MAP, f"tensor {tensor.name} is of layer {layer}; the limit is {MAX_LAYERS}")
        parts[layer].add(tensor.part.partition(".")[0])
    kinds = [_kind_of(parts[layer]) for layer in range(max(parts, default=-1) + 1)]
    if header.architecture in arch.LOOPED:
        return tuple(kinds[block] for block in blocks_of_layers(header) if block < len(kinds))
    return tuple(kinds)


def blocks_of_layers(header: Header) -> tuple[int, ...]:
    """Return for each trunk layer the block of weights that it runs: its own but for models that run blocks again.

    Raises:
        HeaderInvalid: `bad_block_count` where that makes more layers than llama.cpp allows; a key is missing or no number.
    """
    n = header.trunk_layers
    if header.architecture == "nanbeige":
        loops = header.get_uint(header.key("num_loops"), 1)
        _check_runs(header, n * loops, MAX_LAYERS)
        return (*range(n),) * loops
    if header.architecture == "hrm_text":
        stack, high, low = (header.get_uint(header.key(f"hrm.{key}")) for key in _HRM_KEYS)
        _check_runs(header, stack * (low + 1) * high, n, least=n)
        return ((*range(stack),) * low + (*range(stack, 2 * stack),)) * high
    return tuple(range(n))


def disagreements(header: Header) -> tuple[str, ...]:
    """Return, as text, where metadata and tensor names differ; () where they agree or one of them is silent."""
    said = layer_kinds_from_metadata(header)
    seen = layer_kinds_from_tensors(header)
    if said is None or not header.tensors:
        return ()
    pairs = enumerate(zip(said, seen, strict=False))
    lines = [f"layer {index}: {a} by its metadata, {b} by its tensors" for index, (a, b) in pairs if a != b]
    expected = len(said) if header.architecture in arch.LOOPED else header.block_count
    if len(seen) != expected:
        lines.insert(0, f"{len(seen)} layers have tensors, but block_count is {header.block_count}")
    return tuple(lines)


def period(kinds: Sequence[LayerKind]) -> int | None:
    """Return the length of the repeating pattern, which must be seen at least twice; None where there is none."""
    n = len(kinds)
    return next((p for p in range(1, n // 2 + 1) if all(kinds[i] == kinds[i - p] for i in range(p, n))), None)


def head_counts_kv(header: Header) -> tuple[int, ...]:
    """Return KV heads of all layers; absent, they are as many as the query heads."""
    n = header.block_count
    heads = header.get_per_layer(header.key("attention.head_count"), n, 0)
    if header.key("attention.head_count_kv") not in header.metadata:
        return heads
    return header.get_per_layer(header.key("attention.head_count_kv"), n)


def compress_ratios(header: Header) -> tuple[int, ...]:
    """Return for each trunk layer how many tokens one of its compressed keys stands for; 0 where it has none.

    Raises:
        HeaderInvalid: the list is missing or too short; `bad_value` for a ratio that llama.cpp has no cache for.
    """
    key = header.key("attention.compress_ratios")
    value = header.metadata.get(key)
    if not isinstance(value, tuple) or len(value) < header.block_count:  # longer ones are cut off, as llama.cpp does it
        verdict = Verdict.MISSING_KEY if value is None else Verdict.BAD_VALUE
        header.fail(verdict, f"{key} must be a list with a number for each of the {header.block_count} layers")
    listed = value[: header.trunk_layers]
    ratios = tuple(ratio for ratio in listed if isinstance(ratio, int) and ratio in (0, *COMPRESS_RATIOS))
    if len(ratios) < len(listed):
        header.fail(
            Verdict.BAD_VALUE, f"{key} is {describe(value)}; llama.cpp keeps caches for ratios of 4 and 128 only"
        )
    return ratios


def _check_runs(header: Header, layers: int, most: int, least: int = 1) -> None:
    """Refuse a number of layers that llama.cpp refuses."""
    if not least <= layers <= most:
        header.fail(Verdict.BAD_BLOCK_COUNT, f"its blocks run as {layers} layers; it must be {least} to {most}")


def _by_zero(heads: Sequence[int], without: LayerKind) -> tuple[LayerKind, ...]:
    return tuple(LayerKind.ATTENTION if count else without for count in heads)


def _by_zero_and_ff(header: Header) -> tuple[LayerKind, ...]:
    n = header.trunk_layers
    widths = header.get_per_layer(header.key("feed_forward_length"), header.block_count, 0)[:n]
    kinds = _by_zero(head_counts_kv(header)[:n], LayerKind.RECURRENT)
    return tuple(LayerKind.NEITHER if width else kind for kind, width in zip(kinds, widths, strict=True))


def _by_interval(header: Header) -> tuple[LayerKind, ...]:
    n = header.trunk_layers
    key = header.key("attention.recurrent_layers")
    if key in header.metadata:
        flags: Sequence[object] = header.get_per_layer(key, header.block_count)[:n]
    else:
        key = header.key("full_attention_interval")
        interval = header.get_uint(key, arch.BY_INTERVAL[header.architecture])
        if interval == 0:
            header.fail(Verdict.BAD_VALUE, f"{key} is 0, and llama.cpp divides by it")
        flags = [(index + 1) % interval for index in range(n)]
    return tuple(LayerKind.RECURRENT if flag else LayerKind.ATTENTION for flag in flags)


def _check_plausible(header: Header, kinds: tuple[LayerKind, ...]) -> None:
    """Refuse what llama.cpp would load and then compute nonsense with."""
    if header.architecture in arch.HYBRID and not any(kind.attention for kind in kinds):
        header.fail(Verdict.BAD_LAYER_MAP, f"it is a hybrid, {header.architecture}, but no layer has attention")
    flags = header.metadata.get(header.key("attention.recurrent_layers"))
    if header.architecture in arch.BY_INTERVAL or not isinstance(flags, tuple | SkippedArray):
        return
    # llama.cpp writes this list for every architecture and reads it for few; where it is, it must not lie
    said = header.get_per_layer(header.key("attention.recurrent_layers"), header.block_count)
    wrong = [index for index, kind in enumerate(kinds) if bool(said[index]) != kind.recurrent]
    if wrong:
        header.fail(
            Verdict.BAD_LAYER_MAP, f"attention.recurrent_layers contradicts the rule of its architecture in {wrong}"
        )


_ATTENTION_PARTS = frozenset(
    {
        "attn_k", "attn_k_b", "attn_kv", "attn_kv_a_mqa", "attn_kv_b", "attn_q", "attn_q_a", "attn_q_b", "attn_qkv",
        "attn_v",
    }
)  # fmt: skip
# projections of a linear attention, named like those of attention: gated delta net, Kimi delta attention
_DELTA_PARTS = frozenset({"ssm_alpha", "ssm_ba", "ssm_beta", "ssm_f_a"})
# lightning attention (MiniMax-01) has no state tensor of its own, only these three together
_LIGHTNING_PARTS = frozenset({"attn_gate", "attn_norm_2", "attn_qkv"})
COMPRESS_RATIOS = (4, 128)
"""`DSV4_CSA_RATIO` and `DSV4_HCA_RATIO` of llama.cpp's `llama-kv-cache-dsv4.cpp`."""

_HRM_KEYS = ("layers_per_stack", "h_cycles", "l_cycles")
_RECURRENT_PREFIXES = ("ssm_", "time_mix_", "shortconv", "attn_compressor_")


def _kind_of(parts: set[str]) -> LayerKind:
    if parts & _DELTA_PARTS or parts >= _LIGHTNING_PARTS:
        return LayerKind.RECURRENT
    recurrent = any(part.startswith(_RECURRENT_PREFIXES) for part in parts)
    if parts & _ATTENTION_PARTS:
        return LayerKind.BOTH if recurrent else LayerKind.ATTENTION
    return LayerKind.RECURRENT if recurrent else LayerKind.NEITHER
