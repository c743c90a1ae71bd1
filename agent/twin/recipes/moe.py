"""Mixtures of experts with plain attention."""

from __future__ import annotations

from agent.twin.recipes.common import WINDOW, attention_only, experts, transformer

QWEN3MOE = attention_only(
    "qwen3moe",
    seed=1,
    metadata={**transformer(rope_base=1e7), **experts()},
    source="published configuration of Qwen/Qwen3-30B-A3B-Instruct-2507: every layer alike, all with experts",
    notes="8 layers of 48, 2 of 8 experts in place of 8 of 128",
    omit=("*.bias",),
)

MINIMAX_M2 = attention_only(
    "minimax-m2",
    seed=11,
    metadata={**transformer(feed_forward=32, rope_base=5e6, rope__dimension_count=16), **experts(expert_gating_func=2)},
    source="published configuration of MiniMaxAI/MiniMax-M2: every layer alike, half of a head rotated, sigmoid "
    "routing with bias",
    notes="8 layers of 62, 2 of 8 experts in place of 8 of 256",
    omit=("*attn_?.bias",),
)

_LAGUNA_FULL = tuple(layer % 4 == 0 for layer in range(8))

LAGUNA = attention_only(
    "laguna",
    metadata={
        **transformer(
            heads=tuple(2 if full else 4 for full in _LAGUNA_FULL),
            rope_base=5e5,
            leading_dense_block_count=1,
            attention__sliding_window=WINDOW,
            rope__dimension_count=16,
            rope__dimension_count_swa=32,
            rope__freq_base_swa=1e4,
            rope__scaling__type="yarn",
            rope__scaling__factor=32.0,
            rope__scaling__original_context_length=64,
        ),
        **experts(
            expert_gating_func=2,
            expert_weights_norm=True,
            expert_weights_scale=2.5,
            expert_shared_feed_forward_length=32,
        ),
    },
    source="llama.cpp's loader and the published configuration of poolside/Laguna-XS.2: full attention at every fourth layer "
    "from layer 0, sliding windows at the others, more heads where there is a window, first layer dense",
    notes="8 layers of 40, 2 of 8 experts in place of 8 of 256, window 16 in place of 512",
    omit=("*attn_?.bias",),
)


_NO_BIAS = ("*attn_*.bias", "*ffn_*.bias", "output.bias")

_SOFTMAX = (
    attention_only(
        "qwen2moe",
        metadata={
            **transformer(head_size=None, kv_heads=4, rope_base=1e6),
            **experts(expert_shared_feed_forward_length=64),
        },
        source="published configuration of Qwen/Qwen1.5-MoE-A2.7B-Chat: every layer alike, a gated shared expert",
        notes="8 layers of 24, 2 of 8 experts in place of 4 of 60",
        omit=("output.bias",),
    ),
    attention_only(
        "olmoe",
        seed=3,
        metadata={**transformer(head_size=None, kv_heads=4, feed_forward=32, eps=1e-5), **experts()},
        source="published configuration of allenai/OLMoE-1B-7B-0924: every layer alike, norms of all of q and k",
        notes="8 layers of 16, 2 of 8 experts in place of 8 of 64",
        omit=_NO_BIAS,
    ),
    attention_only(
        "phimoe",
        seed=3,
        metadata={
            **transformer(
                head_size=None,
                feed_forward=32,
                eps=1e-5,
                rope__dimension_count=16,
                rope__scaling__original_context_length=64,
                rope__scaling__attn_factor=1.19,
            ),
            **experts(),
        },
        source="published configuration of microsoft/Phi-3.5-MoE-instruct: every layer alike, factors for long contexts",
        notes="8 layers of 32, 2 of 8 experts in place of 2 of 16",
    ),
    attention_only(
        "hunyuan-moe",
        seed=2,
        metadata={
            **transformer(feed_forward=32, eps=1e-5, rope__scaling__alpha=1000.0),
            **experts(expert_shared_feed_forward_length=32),
        },
        source="published configuration of tencent/Hunyuan-A13B-Instruct: every layer alike, one shared expert",
        notes="8 layers of 32, 2 of 8 experts in place of 8 of 64",
        omit=_NO_BIAS,
    ),
    attention_only(
        "granitemoe",
        metadata={
            **transformer(
                head_size=None,
                feed_forward=32,
                embedding_scale=12.0,
                residual_scale=0.22,
                attention__scale=0.25,
                logit_scale=6.0,
                rope__dimension_count=16,
            ),
            **experts(),
        },
        source="published configuration of ibm-granite/granite-3.1-1b-a400m-instruct: every layer alike, four scales",
        notes="8 layers of 24, 2 of 8 experts in place of 8 of 32",
        omit=(*_NO_BIAS, "rope_freqs.weight", "*_shexp.weight"),
        gains={
            "token_embd.weight": 1 / 12,
            "output.weight": 6.0,
            "*attn_output.weight": 4.0,
            "*ffn_down_exps.weight": 4.0,
        },
    ),
    attention_only(
        "gpt-oss",
        seed=3,
        metadata={
            **transformer(
                feed_forward=32,
                rope_base=1.5e5,
                eps=1e-5,
                attention__sliding_window=WINDOW,
                rope__scaling__type="yarn",
                rope__scaling__factor=32.0,
                rope__scaling__original_context_length=64,
            ),
            **experts(),
        },
        source="published configuration of openai/gpt-oss-20b: every second layer has a window, sinks, biases everywhere",
        notes="8 layers of 24, 2 of 8 experts in place of 4 of 32, window 16 in place of 128",
    ),
    attention_only(
        "llama4",
        seed=2,
        metadata={
            **transformer(
                rope_base=5e5,
                eps=1e-5,
                rope__dimension_count=32,
                interleave_moe_layer_step=1,
                attention__sliding_window=8192,
            ),
            **experts(used=1, expert_gating_func=2),
        },
        source="published configuration of meta-llama/Llama-4-Scout-17B-16E-Instruct: three chunked layers, then one without "
        "chunks and rotation; an always active expert",
        notes="8 layers of 48, 1 of 8 experts in place of 1 of 16; the chunk of 8192 tokens is fixed in llama.cpp and not passed",
        omit=(*_NO_BIAS, "rope_freqs.weight"),
    ),
    attention_only(
        "dbrx",
        metadata={
            **transformer(
                head_size=None, layer_norm=True, eps=1e-5, feed_forward=32, rope_base=5e5, attention__clamp_kqv=8.0
            ),
            **experts(),
        },
        source="published configuration of databricks/dbrx-instruct: every layer alike, clamped q, k and v",
        notes="8 layers of 40, 2 of 8 experts in place of 4 of 16",
        omit=("*.bias",),
        layout=("fused-qkv",),
    ),
    attention_only(
        "deepseek",
        metadata={
            **transformer(head_size=None, kv_heads=4, leading_dense_block_count=1, rope__dimension_count=16),
            **experts(expert_shared_count=2, expert_weights_scale=1.0),
        },
        source="published configuration of deepseek-ai/deepseek-moe-16b-chat: first layer dense, two shared experts",
        notes="8 layers of 28, 2 of 8 experts in place of 6 of 64",
        omit=("*.bias",),
    ),
    attention_only(
        "deepseek2-ocr",
        metadata={
            **transformer(head_size=None, kv_heads=4, leading_dense_block_count=1, rope__dimension_count=16),
            **experts(expert_shared_count=2, expert_weights_scale=1.0),
        },
        source="published configuration of deepseek-ai/DeepSeek-OCR: first layer dense, two shared experts, no latent attention",
        notes="8 layers of 12, 2 of 8 experts in place of 6 of 64",
        omit=("*.bias",),
    ),
    attention_only(
        "mellum",
        seed=2,
        metadata={
            **transformer(rope_base=5e5, attention__sliding_window=WINDOW),
            **experts(),
        },
        source="llama.cpp's loader of Mellum 2: windows by its own period",
        notes="8 layers, 2 of 8 experts",
        omit=_NO_BIAS,
    ),
)

_SIGMOID = (
    attention_only(
        "glm4moe",
        metadata={
            **transformer(rope_base=1e6, eps=1e-5, rope__dimension_count=16, leading_dense_block_count=1),
            **experts(expert_gating_func=2, expert_shared_count=1, expert_weights_norm=True, expert_weights_scale=1.0),
        },
        source="published configuration of zai-org/GLM-4.5-Air: first layer dense, half of a head rotated, biases on q, k and v",
        notes="8 layers of 46, 2 of 8 experts in place of 8 of 128; without the layer for multi-token prediction",
        omit=("*attn_?_norm.weight",),
    ),
    attention_only(
        "exaone-moe",
        seed=3,
        metadata={
            **transformer(rope_base=1e6, eps=1e-5, leading_dense_block_count=1, attention__sliding_window=WINDOW),
            **experts(
                expert_gating_func=2,
                expert_shared_count=1,
                expert_shared_feed_forward_length=32,
                expert_weights_norm=True,
                expert_weights_scale=2.5,
            ),
        },
        source="published configuration of LGAI-EXAONE/K-EXAONE-236B-A23B: three layers with a window, then one without",
        notes="8 layers of 48, 2 of 8 experts in place of 8 of 128, window 16 in place of 128",
        omit=(*_NO_BIAS, "rope_freqs.weight"),
    ),
    attention_only(
        "dots1",
        metadata={
            **transformer(rope_base=1e7, eps=1e-5, kv_heads=4, leading_dense_block_count=1),
            **experts(expert_gating_func=2, expert_shared_count=2, expert_weights_norm=True, expert_weights_scale=2.5),
        },
        source="published configuration of rednote-hilab/dots.llm1.inst: first layer dense, two shared experts",
        notes="8 layers of 62, 2 of 8 experts in place of 6 of 128",
        omit=_NO_BIAS,
    ),
    attention_only(
        "bailingmoe2",
        seed=1,
        metadata={
            **transformer(head_size=None, rope_base=6e5, rope__dimension_count=8, leading_dense_block_count=1),
            **experts(
                expert_gating_func=2,
                expert_shared_count=1,
                expert_shared_feed_forward_length=32,
                expert_weights_norm=True,
                expert_weights_scale=2.5,
            ),
        },
        source="published configuration of inclusionAI/Ling-mini-2.0: first layer dense, half of a head rotated, fused qkv",
        notes="8 layers of 20, 2 of 8 experts in place of 8 of 256",
        omit=_NO_BIAS,
    ),
    attention_only(
        "afmoe",
        seed=8,
        metadata={
            **transformer(eps=1e-5, leading_dense_block_count=2, attention__sliding_window=WINDOW),
            **experts(expert_gating_func=2, expert_shared_count=1, expert_weights_norm=True, expert_weights_scale=2.8),
        },
        source="published configuration of arcee-ai/Trinity-Nano-Preview: three layers with a window, then one without window "
        "and rotation; two layers dense",
        notes="8 layers of 56, 2 of 8 experts in place of 8 of 128, window 16 in place of 2048",
        omit=_NO_BIAS,
    ),
    attention_only(
        "ernie4_5-moe",
        seed=9,
        metadata={
            **transformer(rope_base=5e5, eps=1e-5, leading_dense_block_count=1, interleave_moe_layer_step=1),
            **experts(expert_shared_count=2, expert_shared_feed_forward_length=64),
        },
        source="published configuration of baidu/ERNIE-4.5-21B-A3B-PT: first layer dense, shared experts",
        notes="8 layers of 28, 2 of 8 experts in place of 6 of 64",
        omit=_NO_BIAS,
    ),
)

MINIMAX_M3 = attention_only(
    "minimax-m3",
    seed=4,
    metadata={
        **transformer(rope_base=5e6, rope__dimension_count=16, leading_dense_block_count=3),
        **experts(
            expert_gating_func=2,
            expert_shared_count=1,
            expert_weights_norm=True,
            expert_weights_scale=2.0,
            attention__indexer__head_count=2,
            attention__indexer__key_length=32,
            attention__indexer__top_k=2,
            attention__indexer__block_size=4,
            attention__indexer__local_blocks=1,
        ),
    },
    source="llama.cpp's converter of MiniMaxAI/MiniMax-M3: dense layers first, then an indexer that picks blocks of tokens",
    notes="8 layers, 2 of 8 experts; the indexer picks 2 blocks of 4 tokens, one head for each key head",
    omit=_NO_BIAS,
)

RECIPES = (QWEN3MOE, MINIMAX_M2, MINIMAX_M3, LAGUNA, *_SOFTMAX, *_SIGMOID)
