"""Models with attention and recurrent layers."""

from __future__ import annotations

from agent.twin.recipe import Recipe, attention_at, periodic, where
from agent.twin.recipes.common import experts, state_space, transformer
from agent.twin.recipes.mla import latent

_JAMBA = periodic(28, 14, 7)

JAMBA = Recipe(
    architecture="jamba",
    seed=3,
    n_layer=28,
    pattern=_JAMBA,
    metadata={
        **transformer(head_size=None, rope_base=None, kv_heads=where(_JAMBA, "A", 1)),
        **state_space(inner=128, state=16, heads=8),
    },
    source="published configuration of ai21labs/AI21-Jamba2-3B: attention at layers 7 and 21 of 28, no experts",
    notes="no positions: its attention does not rotate",
    omit=("*exps.weight", "*ffn_gate_inp.weight"),
)

_KIMI = attention_at(27, (3, 7, 11, 15, 19, 23, 26))

KIMI_LINEAR = Recipe(
    architecture="kimi-linear",
    n_layer=27,
    pattern=_KIMI,
    metadata={
        **transformer(head_size=None, heads=2, leading_dense_block_count=1),
        **latent(),
        "attention.head_count_kv": where(_KIMI, "A", 1),
        "ssm.conv_kernel": 4,
        "kda.head_dim": 32,
        **experts(
            expert_gating_func=2,
            expert_shared_count=1,
            expert_weights_scale=2.446,
        ),
    },
    source="published configuration of moonshotai/Kimi-Linear-48B-A3B-Instruct: latent attention at 3, 7, 11, 15, 19, 23, "
    "26 of 27, the rest delta attention",
    notes="2 of 8 experts in place of 8 of 256; its attention does not rotate",
    omit=("*attn_?.bias",),
)

_QWEN3NEXT = periodic(12, 4, 3)

QWEN3NEXT = Recipe(
    architecture="qwen3next",
    seed=3,
    n_layer=12,
    pattern=_QWEN3NEXT,
    metadata={
        **transformer(rope_base=1e7, rope__dimension_count=8, full_attention_interval=4),
        **experts(expert_shared_feed_forward_length=32),
        **state_space(inner=128, state=32, heads=4, groups=2),
    },
    source="published configuration of Qwen/Qwen3-Coder-Next: attention at every fourth layer, a quarter of a head rotated",
    notes="12 layers of 48, 2 of 8 experts in place of 10 of 512",
    omit=("*ssm_in.weight", "*attn_?.bias"),
    layout=("split-gate-up",),
)

FALCON_H1 = Recipe(
    architecture="falcon-h1",
    seed=12,
    n_layer=8,
    pattern="B" * 8,
    metadata={
        **transformer(rope_base=1e11, eps=1e-5),
        **state_space(inner=128, state=32, heads=4, groups=1),
    },
    source="published configuration of tiiuae/Falcon-H1-1.5B-Instruct: attention and Mamba-2 side by side in every layer",
    notes="8 layers of 24",
    omit=("*attn_*.bias", "*ffn_*.bias", "rope_freqs.weight", "*ssm_norm.weight"),
)

_GRANITE = attention_at(32, (10, 13, 17, 27))

GRANITE_HYBRID = Recipe(
    architecture="granitehybrid",
    n_layer=32,
    pattern=_GRANITE,
    metadata={
        **transformer(
            head_size=None,
            kv_heads=where(_GRANITE, "A", 2),
            eps=1e-5,
            embedding_scale=12.0,
            residual_scale=0.246,
            logit_scale=3.0,
            attention__scale=0.0625,
            rope__scaling__finetuned=False,
        ),
        **state_space(inner=128, state=32, heads=4, groups=1),
    },
    source="published configuration of ibm-granite/granite-4.0-h-350m: attention at 10, 13, 17, 27 of 32, dense",
    notes="no positions: its attention does not rotate",
    omit=("*attn_*.bias", "*ffn_*.bias", "rope_freqs.weight"),
    gains={"token_embd.weight": 1 / 12, "*output.weight": 3.0, "*ffn_down.weight": 3.0, "*ssm_out.weight": 3.0},
)

_LFM2 = attention_at(16, (2, 5, 8, 10, 12, 14))

LFM2 = Recipe(
    architecture="lfm2",
    seed=1,
    n_layer=16,
    pattern=_LFM2,
    metadata=transformer(head_size=None, kv_heads=where(_LFM2, "A", 2), rope_base=1e6, eps=1e-5, shortconv__l_cache=3),
    source="published configuration of LiquidAI/LFM2-350M: attention at 2, 5, 8, 10, 12, 14 of 16, short convolutions elsewhere",
    notes="all layers; no sliding window",
    omit=("*.bias", "dense_2*"),
)


_LFM2MOE = attention_at(24, (2, 6, 10, 14, 18, 21))

LFM2MOE = Recipe(
    architecture="lfm2moe",
    seed=1,
    n_layer=24,
    pattern=_LFM2MOE,
    metadata={
        **transformer(
            head_size=None,
            kv_heads=where(_LFM2MOE, "A", 2),
            rope_base=1e6,
            eps=1e-5,
            shortconv__l_cache=3,
            leading_dense_block_count=2,
        ),
        **experts(expert_gating_func=2),
    },
    source="published configuration of LiquidAI/LFM2-8B-A1B: attention at 2, 6, 10, 14, 18, 21 of 24, two layers dense",
    notes="all layers; 2 of 8 experts in place of 4 of 32",
    omit=("*attn_*.bias", "*ffn_*.bias", "output.bias", "dense_2*"),
)

_QWEN35 = periodic(8, 4, 3)

QWEN35 = Recipe(
    architecture="qwen35",
    seed=6,
    n_layer=8,
    pattern=_QWEN35,
    metadata={
        **transformer(
            rope_base=1e7, rope__dimension_count=8, rope__dimension_sections=(2, 1, 1, 0), full_attention_interval=4
        ),
        **state_space(inner=128, state=32, heads=4, groups=2),
    },
    source="published configuration of Qwen/Qwen3.5-4B: attention at every fourth layer, three axes of position",
    notes="8 layers of 32",
    omit=("*attn_?.bias",),
)

QWEN35MOE = Recipe(
    architecture="qwen35moe",
    seed=2,
    n_layer=8,
    pattern=_QWEN35,
    metadata={
        **transformer(
            rope_base=1e7, rope__dimension_count=8, rope__dimension_sections=(2, 1, 1, 0), full_attention_interval=4
        ),
        **experts(expert_shared_feed_forward_length=32),
        **state_space(inner=128, state=32, heads=4, groups=2),
    },
    source="published configuration of Qwen/Qwen3.5-35B-A3B: attention at every fourth layer, three axes of position",
    notes="8 layers of 40, 2 of 8 experts in place of 8 of 256",
    omit=("*attn_?.bias",),
    layout=("split-gate-up",),
)


def _nemotron(layers: str) -> str:
    """The pattern that a Nemotron-H configuration writes: M recurrent, * attention, - and E feed-forward only."""
    return layers.translate(str.maketrans("M*-E", "RANN"))


_NEMOTRON = _nemotron("M-M-M-M*-M-M-M-M-M*-M")

NEMOTRON_H = Recipe(
    architecture="nemotron_h",
    seed=1,
    n_layer=len(_NEMOTRON),
    pattern=_NEMOTRON,
    metadata={
        **transformer(
            kv_heads=where(_NEMOTRON, "A", 2),
            heads=4,
            rope_base=None,
            eps=1e-5,
        ),
        "feed_forward_length": where(_NEMOTRON, "N", 128),
        "attention.layer_norm_epsilon": 1e-5,
        **state_space(inner=128, state=32, heads=4, groups=2),
    },
    source="published configuration of nvidia/Nemotron-H-8B-Base-8K: its first 21 of 52 layers, M-M-M-M*-M-M-M-M-M*-M",
    notes="no positions: its attention does not rotate",
    omit=("*attn_*.bias", "*ffn_*.bias"),
)

_NEMOTRON_MOE = _nemotron("MEMEM*EMEMEM*EMEMEM*EM")

NEMOTRON_H_MOE = Recipe(
    architecture="nemotron_h_moe",
    seed=1,
    n_layer=len(_NEMOTRON_MOE),
    pattern=_NEMOTRON_MOE,
    metadata={
        **transformer(kv_heads=where(_NEMOTRON_MOE, "A", 2), heads=4, rope_base=None, eps=1e-5),
        "feed_forward_length": where(_NEMOTRON_MOE, "N", 32),
        "attention.layer_norm_epsilon": 1e-5,
        **experts(
            expert_shared_count=1,
            expert_shared_feed_forward_length=64,
            expert_weights_norm=True,
            expert_weights_scale=2.5,
        ),
        **state_space(inner=128, state=32, heads=4, groups=2),
    },
    source="published configuration of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16: its first 22 of 52 layers",
    notes="2 of 8 experts in place of 6 of 128; no positions",
    omit=("*attn_*.bias", "*ffn_*.bias"),
)

_PLAMO2 = periodic(8, 2, 1)

PLAMO2 = Recipe(
    architecture="plamo2",
    n_layer=8,
    pattern=_PLAMO2,
    metadata={
        **transformer(kv_heads=where(_PLAMO2, "A", 2), heads=4),
        **state_space(inner=128, state=32, heads=4, groups=0),
    },
    source="published configuration of pfnet/plamo-2-1b: attention at every second layer",
    notes="8 layers of 16; one number of heads for all layers and not a list that begins with 0, as the converter writes it: "
    "llama.cpp takes the width of rotation from layer 0, and its CPU kernel never returns for a width of 0",
)

_LIGHTNING = periodic(16, 8, 7)

MINIMAX_01 = Recipe(
    architecture="minimax-01",
    n_layer=len(_LIGHTNING),
    pattern=_LIGHTNING,
    metadata={
        **transformer(
            rope_base=1e7, eps=1e-5, feed_forward=32, rope__dimension_count=16, residual_scale=3.5565588200778455
        ),
        "expert_count": 8,
        "expert_used_count": 2,
    },
    source="published configuration of MiniMaxAI/MiniMax-Text-01: attention at every eighth layer, lightning attention elsewhere",
    notes="16 layers of 80, 2 of 8 experts in place of 2 of 32",
    omit=("*attn_*.bias",),
)

_LING3 = attention_at(12, (3, 7, 11))

BAILINGMOE3 = Recipe(
    architecture="bailingmoe3",
    n_layer=len(_LING3),
    pattern=_LING3,
    metadata={
        **transformer(head_size=None, rope_base=6e6, leading_dense_block_count=1),
        **latent(q_rank=48),
        "attention.head_count_kv": where(_LING3, "A", 1),
        "ssm.conv_kernel": 4,
        "kda.head_dim": 32,
        "kda.safe_gate": True,
        "kda.gate_lower_bound": -5.0,
        **experts(
            expert_gating_func=2,
            expert_shared_count=1,
            expert_shared_feed_forward_length=32,
            expert_weights_norm=True,
            expert_weights_scale=2.5,
            swiglu_clamp_exp=(*(0.0,) * 6, *(7.0,) * 6),
            swiglu_clamp_shexp=(*(0.0,) * 6, *(7.0,) * 6),
        ),
    },
    source="llama.cpp's loader and converter of inclusionAI/Ling-3.0-flash: latent attention with gates at some layers, delta "
    "attention elsewhere, first layer dense",
    notes="12 layers of 42, attention at every fourth, 2 of 8 experts; without the layer for multi-token prediction",
    omit=("*attn_?.bias",),
    gains={"*ssm_a": -1.0},  # the converter stores a factor of the gate here, which is positive
)

RECIPES = (
    JAMBA,
    KIMI_LINEAR,
    QWEN3NEXT,
    FALCON_H1,
    GRANITE_HYBRID,
    LFM2,
    LFM2MOE,
    QWEN35,
    QWEN35MOE,
    NEMOTRON_H,
    NEMOTRON_H_MOE,
    PLAMO2,
    MINIMAX_01,
    BAILINGMOE3,
)
