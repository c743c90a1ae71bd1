"""Models whose every layer is recurrent."""

from __future__ import annotations

from agent.twin.recipe import Recipe
from agent.twin.recipes.common import CONTEXT, state_space

_PLAIN = "R" * 8
_EMBEDDING = 64

MAMBA = Recipe(
    architecture="mamba",
    seed=2,
    n_layer=8,
    pattern=_PLAIN,
    metadata={
        "context_length": CONTEXT,
        "embedding_length": _EMBEDDING,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **state_space(inner=2 * _EMBEDDING, state=16, heads=8),
    },
    source="published configuration of state-spaces/mamba-130m-hf: every layer alike",
    notes="8 layers of 24; untied output",
)

MAMBA2 = Recipe(
    architecture="mamba2",
    seed=15,
    n_layer=8,
    pattern=_PLAIN,
    metadata={
        "context_length": CONTEXT,
        "embedding_length": _EMBEDDING,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **state_space(inner=2 * _EMBEDDING, state=32, heads=4, groups=1),
    },
    source="published configuration of state-spaces/mamba2-130m: every layer alike",
    notes="8 layers of 24; untied output; state 32 in place of 128",
)

RWKV6 = Recipe(
    architecture="rwkv6",
    n_layer=8,
    pattern=_PLAIN,
    metadata={
        "context_length": CONTEXT,
        "embedding_length": 128,
        "feed_forward_length": 256,
        "attention.head_count": 0,
        "attention.layer_norm_epsilon": 1e-5,
        "rescale_every_n_layers": 6,
        "wkv.head_size": 64,
        "time_mix_extra_dim": 32,
        "time_decay_extra_dim": 64,
    },
    source="published configuration of RWKV/v6-Finch-1B6-HF: every layer alike, rescaled at every sixth",
    notes="8 layers of 24; heads of 64, which the kernel assumes",
    omit=("*time_mix_lerp_[wkvrg].weight",),
)

RWKV7 = Recipe(
    architecture="rwkv7",
    seed=1,
    n_layer=8,
    pattern=_PLAIN,
    metadata={
        "context_length": CONTEXT,
        "embedding_length": 128,
        "feed_forward_length": 256,
        "attention.head_count": 0,
        "attention.layer_norm_epsilon": 1e-5,
        "wkv.head_size": 64,
        "attention.decay_lora_rank": 32,
        "attention.iclr_lora_rank": 32,
        "attention.value_residual_mix_lora_rank": 16,
        "attention.gate_lora_rank": 32,
    },
    source="published configuration of RWKV7-Goose-World2.8-0.1B: every layer alike; layer 0 gives its value to all others",
    notes="8 layers of 12; heads of 64, which the kernel assumes",
)


RWKV6QWEN2 = Recipe(
    architecture="rwkv6qwen2",
    n_layer=8,
    pattern=_PLAIN,
    metadata={
        "context_length": CONTEXT,
        "embedding_length": 128,
        "feed_forward_length": 256,
        "attention.head_count": 0,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "token_shift_count": 1,
        "wkv.head_size": 64,
        "time_mix_extra_dim": 32,
        "time_decay_extra_dim": 64,
    },
    source="published configuration of recursal/QRWKV6-32B-Instruct-Preview-v0.1: every layer alike, feed-forward of Qwen2",
    notes="8 layers of 64; heads of 64, which the kernel assumes; no first-token bonus and no norm, as in the family",
    omit=("*time_mix_lerp_[wkvrg].weight", "*time_mix_first.weight", "*time_mix_ln.*"),
)

ARWKV7 = Recipe(
    architecture="arwkv7",
    n_layer=8,
    pattern=_PLAIN,
    metadata={
        "context_length": CONTEXT,
        "embedding_length": 128,
        "feed_forward_length": 256,
        "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "token_shift_count": 1,
        "wkv.head_size": 64,
        "attention.decay_lora_rank": 32,
        "attention.iclr_lora_rank": 32,
        "attention.value_residual_mix_lora_rank": 16,
        "attention.gate_lora_rank": 32,
    },
    source="published configuration of RWKV-Red-Team/ARWKV-7B-Preview-0.1: every layer alike, feed-forward of Qwen2",
    notes="8 layers of 28; heads of 64, which the kernel assumes; no norm after the state, as in the family",
    omit=("*time_mix_ln.*",),
)

RECIPES = (MAMBA, MAMBA2, RWKV6, RWKV7, RWKV6QWEN2, ARWKV7)
