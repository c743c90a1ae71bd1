"""Metadata that most recipes share: tiny widths in proportions that keep the real model's traits."""

from __future__ import annotations

from typing import Any

from agent.twin.recipe import MetaValue, Recipe

CONTEXT = 512  # tokens: `context_length` of every twin
WINDOW = 16  # tokens: less than the shortest prompt of a lane, so that every sliding window is passed


def transformer(
    *,
    embedding: int = 64,
    feed_forward: int = 128,
    heads: int | tuple[int, ...] = 4,
    kv_heads: int | tuple[int, ...] = 2,
    head_size: int | None = 32,
    rope_base: float | None = 10000.0,
    eps: float = 1e-6,
    layer_norm: bool = False,
    **extra: MetaValue,
) -> dict[str, MetaValue]:
    """Keys of a transformer. `head_size` other than ``embedding / heads`` makes the two distinct, as in many real models.

    Extra keys are written with ``__`` for a dot: ``expert__count`` is not one, ``attention__sliding_window`` is.
    """
    keys: dict[str, MetaValue] = {
        "context_length": CONTEXT,
        "embedding_length": embedding,
        "feed_forward_length": feed_forward,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        ("attention.layer_norm_epsilon" if layer_norm else "attention.layer_norm_rms_epsilon"): eps,
    }
    if head_size is not None:
        keys["attention.key_length"] = head_size
        keys["attention.value_length"] = head_size
    if rope_base is not None:
        keys["rope.freq_base"] = rope_base
    keys.update({key.replace("__", "."): value for key, value in extra.items()})
    return keys


def experts(*, count: int = 8, used: int = 2, feed_forward: int = 32, **extra: MetaValue) -> dict[str, MetaValue]:
    """Keys of a mixture of experts, to be merged with those of a transformer."""
    keys: dict[str, MetaValue] = {
        "expert_count": count,
        "expert_used_count": used,
        "expert_feed_forward_length": feed_forward,
    }
    keys.update({key.replace("__", "."): value for key, value in extra.items()})
    return keys


def state_space(
    *, inner: int, state: int, heads: int, kernel: int = 4, groups: int | None = None
) -> dict[str, MetaValue]:
    """Keys of a Mamba-like layer; `heads` is the time step rank (Mamba-1) or the number of heads (Mamba-2)."""
    keys: dict[str, MetaValue] = {
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": heads,
    }
    if groups is not None:
        keys["ssm.group_count"] = groups
    return keys


def attention_only(architecture: str, *, n_layer: int = 8, **rest: Any) -> Recipe:
    """A recipe whose every layer is attention; `rest` as for `Recipe`."""
    return Recipe(architecture=architecture, n_layer=n_layer, pattern="A" * n_layer, **rest)
