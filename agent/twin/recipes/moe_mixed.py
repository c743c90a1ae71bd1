"""Mixtures of experts beside something else: a dense feed-forward, shared experts, experts of groups."""

from __future__ import annotations

from agent.twin.recipes.common import attention_only, experts, transformer
from agent.twin.recipes.windowed import only_experts

_NO_BIAS = ("*attn_*.bias",)

RECIPES = (
    attention_only(
        "grok",
        metadata={
            **transformer(
                head_size=None,
                eps=1e-5,
                embedding_scale=90.5,
                logit_scale=0.5,
                attention__output_scale=0.25,
                attn_logit_softcapping=30.0,
                router_logit_softcapping=30.0,
                final_logit_softcapping=50.0,
            ),
            **experts(),
        },
        source="published configuration of xai-org/grok-2: every layer alike, a dense feed-forward beside the experts, norms "
        "before and after each part, caps on scores, router and logits",
        notes="8 layers of 64, 2 of 8 experts; the scale of attention follows from the twin's head size",
        omit=_NO_BIAS,
        gains={"token_embd.weight": 1 / 90},
    ),
    attention_only(
        "arctic",
        seed=9,
        metadata={**transformer(head_size=None, feed_forward=32, eps=1e-5, rope__dimension_count=16), **experts()},
        source="published configuration of Snowflake/snowflake-arctic-instruct: every layer alike, a dense feed-forward before "
        "the experts, which read the layer's input",
        notes="8 layers of 35, 2 of 8 experts in place of 2 of 128",
        omit=_NO_BIAS,
    ),
    attention_only(
        "bailingmoe",
        seed=8,
        metadata={
            **transformer(head_size=None, rope_base=6e5, rope__dimension_count=16, leading_dense_block_count=0),
            **experts(expert_shared_count=2, expert_weights_norm=True, expert_weights_scale=1.0),
        },
        source="published configuration of inclusionAI/Ling-lite: every layer alike, two shared experts",
        notes="8 layers of 28, 2 of 8 experts in place of 6 of 64",
        omit=_NO_BIAS,
    ),
    attention_only(
        "grovemoe",
        seed=2,
        metadata={
            **transformer(rope_base=1e7),
            **experts(expert_chunk_feed_forward_length=16, experts_per_group=2, expert_group_scale=0.05),
        },
        source="published configuration of inclusionAI/GroveMoE-Inst: every layer alike, two experts share a smaller one",
        notes="8 layers of 48, 2 of 8 experts in place of 8 of 128",
        omit=_NO_BIAS,
    ),
    attention_only(
        "hy_v3",
        metadata={
            **transformer(rope_base=1e7, eps=1e-5),
            **experts(
                expert_gating_func=2,
                expert_shared_feed_forward_length=32,
                expert_weights_norm=True,
                expert_weights_scale=2.5,
            ),
        },
        source="llama.cpp's loader and converter of tencent/Hy3: first layer dense, one shared expert, sigmoid routing with bias",
        notes="8 layers, 2 of 8 experts; without the layer for multi-token prediction",
        omit=(*_NO_BIAS, *only_experts(1)),
        layout=("split-gate-up",),
    ),
)
