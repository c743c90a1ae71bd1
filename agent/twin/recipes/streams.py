"""Models whose layers hand on more than one hidden state: hyper-connections, and residuals from layers far below."""

from __future__ import annotations

from agent.twin.recipe import MetaValue, Recipe, attention_at, periodic, where
from agent.twin.recipes.common import WINDOW, attention_only, experts, state_space, transformer
from agent.twin.recipes.mla import latent

STREAMS = 4


def hyper_connections(**extra: MetaValue) -> dict[str, MetaValue]:
    """Keys of `STREAMS` hidden states that a layer mixes, and what else their mixer takes."""
    keys = {"count": STREAMS, **extra}
    return {f"hyper_connection.{key}": value for key, value in keys.items()}


def indexer(*, heads: int = 4, size: int = 64, top_k: int = 8, **extra: MetaValue) -> dict[str, MetaValue]:
    """Keys of an indexer that picks `top_k` tokens; `extra` as in a GGUF, without ``attention.indexer.``."""
    keys = {"head_count": heads, "key_length": size, "top_k": top_k, **extra}
    return {f"attention.indexer.{key}": value for key, value in keys.items()}


DEEPSEEK4 = Recipe(
    architecture="deepseek4",
    seed=2,
    n_layer=10,
    pattern="AA" + "B" * 8,
    metadata={
        **transformer(
            heads=8,
            kv_heads=1,
            eps=1e-6,
            attention__q_lora_rank=48,
            attention__sliding_window=WINDOW,
            attention__output_group_count=4,
            attention__output_lora_rank=16,
            attention__compress_ratios=(0, 0, 4, 128, 4, 128, 4, 128, 4, 128),
            attention__compress_rope_freq_base=160000.0,
            rope__dimension_count=16,
            hash_layer_count=3,
            swiglu_clamp_exp=(10.0,) * 10,
        ),
        **hyper_connections(sinkhorn_iterations=4, epsilon=1e-6),
        **indexer(top_k=4),
        **experts(
            expert_gating_func=4,
            expert_shared_count=1,
            expert_weights_norm=True,
            expert_weights_scale=1.5,
        ),
    },
    source="llama.cpp's loader and converter of deepseek-ai/DeepSeek-V4-Flash: windows everywhere, from layer 2 on also a "
    "compressed cache of every 4 or 128 tokens in turn, four streams, experts of the first three layers chosen by token",
    notes="10 layers of 43, 2 of 8 experts, window 16; the ratios 4 and 128 are fixed in llama.cpp, so that of 128 is not passed",
)

HY_V4 = attention_only(
    "hy_v4",
    metadata={
        **transformer(head_size=None, leading_dense_block_count=1, swiglu_clamp_exp=(10.0,) * 8),
        **latent(q_rank=48),
        **hyper_connections(epsilon=1e-6, magnitude=2.0),
        **indexer(types=tuple(layer % 4 == 0 for layer in range(8))),
        **experts(expert_gating_func=2, expert_shared_count=1, expert_weights_norm=True, expert_weights_scale=2.5),
    },
    source="llama.cpp's loader and converter of HY V4: latent attention with sinks and a gate, four streams, an indexer at every "
    "fourth layer whose choice the layers above it share",
    notes="8 layers, 2 of 8 experts; where the indexers are is not the family's",
)

_QWEN4 = periodic(12, 4, 3)
_ROWS = 61  # of the table of each head of the n-gram embedding

QWEN4EXP = Recipe(
    architecture="qwen4exp",
    seed=1,
    n_layer=12,
    pattern=_QWEN4,
    metadata={
        **transformer(
            rope_base=1e7,
            rope__dimension_count=16,
            rope__dimension_sections=(3, 3, 2, 0),
            full_attention_interval=4,
            attention__compress_ratios=where(_QWEN4, "A", 4),
            embedding_length_per_layer_input=16,
            ple__layers=(0,),
            ple__ngram_size=3,
            ple__heads_per_ngram=2,
            ple__conv_kernel=4,
            ple__eos_token_id=0,
            ple__layer_multipliers=(1, 3, 5),
            ple__head_offsets=tuple(head * _ROWS for head in range(4)),
            ple__head_vocab_sizes=(_ROWS,) * 4,
        ),
        **hyper_connections(low_rank=8),
        **indexer(size=32),
        **experts(expert_shared_feed_forward_length=32),
        **state_space(inner=128, state=32, heads=4, groups=2),
    },
    source="llama.cpp's loader and converter of Qwen 4 (experimental): attention with an indexer at every fourth layer, delta "
    "attention elsewhere, four streams, an embedding of three tokens together at layer 0",
    notes="12 layers of 48, 2 of 8 experts; the indexer picks 8 tokens",
    omit=("*attn_?.bias",),
    layout=("split-gate-up",),
)

_GLM5 = attention_at(12, (3, 7, 11))

GLM5_NEXT = Recipe(
    architecture="glm5-next",
    n_layer=12,
    pattern=_GLM5,
    metadata={
        **transformer(
            head_size=None,
            leading_dense_block_count=1,
            swiglu_clamp_exp=(10.0,) * 12,
            swiglu_clamp_shexp=(10.0,) * 12,
            attention__layer_norm_epsilon=1e-6,
        ),
        **latent(q_rank=48, rope=0, nope=32),
        "attention.head_count_kv": where(_GLM5, "A", 1),
        "ssm.conv_kernel": 4,
        "kda.head_dim": 32,
        "kda.gate_lower_bound": -5.0,
        **hyper_connections(sinkhorn_iterations=4, epsilon=1e-6),
        **indexer(kpool=4, kpool_select_tail=True),
        **experts(expert_shared_count=1, expert_weights_norm=True, expert_weights_scale=2.5),
    },
    source="llama.cpp's loader and converter of zai-org/GLM-5.3-Flash: latent attention with an indexer over groups of tokens at "
    "every fourth layer, delta attention elsewhere, four streams",
    notes="12 layers of 45, 2 of 8 experts; the indexer picks 8 tokens; without the layer for multi-token prediction",
)

_KIMI_K3 = attention_at(12, (3, 7, 11))

KIMI_K3 = Recipe(
    architecture="kimi-k3",
    seed=3,
    n_layer=12,
    pattern=_KIMI_K3,
    metadata={
        **transformer(head_size=None, leading_dense_block_count=1),
        **latent(q_rank=48),
        "attention.head_count_kv": where(_KIMI_K3, "A", 1),
        "ssm.conv_kernel": 4,
        "kda.head_dim": 32,
        "kda.gate_lower_bound": -5.0,
        "attn_res.block_size": 4,
        "activation.situ_beta": 4.0,
        "activation.situ_linear_beta": 25.0,
        **experts(
            expert_gating_func=2,
            expert_shared_count=1,
            expert_weights_norm=True,
            expert_weights_scale=2.5,
            expert_latent_length=32,
        ),
    },
    source="llama.cpp's loader and converter of Kimi K3: latent attention at every fourth layer, delta attention elsewhere, each "
    "part reads a mixture of all blocks of layers below, experts in a narrower space",
    notes="12 layers of 93, blocks of 4 layers in place of 12, 2 of 8 experts; its attention does not rotate",
    omit=("*attn_?.bias",),
)

RECIPES = (DEEPSEEK4, HY_V4, QWEN4EXP, GLM5_NEXT, KIMI_K3)
