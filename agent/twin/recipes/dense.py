"""Dense transformers."""

from __future__ import annotations

from agent.twin.recipes.common import WINDOW, attention_only, transformer

QWEN3 = attention_only(
    "qwen3",
    metadata=transformer(rope_base=1e6),
    source="published configuration of Qwen/Qwen3-0.6B: every layer alike",
    notes="8 layers of 28; the output matrix is not tied to the embedding, so that the next token is not the last one",
    omit=("*.bias",),
)

QWEN2 = attention_only(
    "qwen2",
    seed=1,
    metadata=transformer(head_size=None, rope_base=1e6),
    source="published configuration of Qwen/Qwen2.5-1.5B-Instruct: every layer alike, with biases on q, k and v",
    notes="8 layers",
    omit=("output.bias",),
)

LLAMA = attention_only(
    "llama",
    seed=1,
    metadata=transformer(head_size=16, rope_base=5e5, eps=1e-5, rope__dimension_count=16),
    source="published configuration of meta-llama/Llama-3.2-1B-Instruct: every layer alike, with rope frequency factors",
    notes="8 layers of 16; untied output",
    omit=("*.bias",),
)

CHATGLM = attention_only(
    "chatglm",
    seed=7,
    metadata=transformer(head_size=None, eps=1.5625e-7, rope__dimension_count=8),
    source="published configuration of THUDM/glm-4-9b-chat: every layer alike, fused qkv with bias, half of a head rotated",
    notes="8 layers of 40",
    layout=("fused-qkv",),
)

GLM4 = attention_only(
    "glm4",
    seed=1,
    metadata=transformer(head_size=32, eps=1e-5, rope__dimension_count=16),
    source="published configuration of THUDM/GLM-4-9B-0414: every layer alike, norms before and after, half of a head rotated",
    notes="8 layers of 40",
)


# Without biases, the output of an untied matrix; what most of the newer dense families are.
_NO_BIAS = ("*.bias",)

_SIMPLE = (
    attention_only(
        "internlm2",
        metadata=transformer(head_size=None, rope_base=1e6, eps=1e-5),
        source="published configuration of internlm/internlm2_5-1_8b-chat: every layer alike",
        notes="8 layers of 24",
        omit=_NO_BIAS,
    ),
    attention_only(
        "olmo",
        seed=2,
        metadata=transformer(head_size=None, layer_norm=True, eps=1e-5, attention__clamp_kqv=8.0),
        source="published configuration of allenai/OLMo-1B-hf: every layer alike, norms without weights",
        notes="8 layers of 16; the clamp of the 7B model",
        omit=_NO_BIAS,
    ),
    attention_only(
        "olmo2",
        seed=4,
        metadata=transformer(head_size=None, rope_base=5e5),
        source="published configuration of allenai/OLMo-2-0425-1B: every layer alike, norms after each part",
        notes="8 layers of 16",
        omit=_NO_BIAS,
    ),
    attention_only(
        "mistral3",
        seed=1,
        metadata=transformer(
            rope_base=1e6,
            eps=1e-5,
            attention__temperature_scale=0.1,
            rope__scaling__type="yarn",
            rope__scaling__factor=16.0,
            rope__scaling__original_context_length=32,
            rope__scaling__yarn_beta_fast=32.0,
            rope__scaling__yarn_beta_slow=1.0,
            rope__scaling__yarn_log_multiplier=1.0,
        ),
        source="published configuration of mistralai/Ministral-3-3B-Instruct-2512: every layer alike, queries scaled by position",
        notes="8 layers of 26; the first scaling of queries begins at 32 tokens, so a prompt passes it",
        omit=(*_NO_BIAS, "*_exps.weight", "*ffn_gate_inp.weight", "rope_freqs.weight", "rope_factors_*"),
    ),
    attention_only(
        "exaone",
        metadata=transformer(head_size=None, rope_base=1e6, eps=1e-5),
        source="published configuration of LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct: every layer alike, rope frequency factors",
        notes="8 layers of 30",
        omit=_NO_BIAS,
    ),
    attention_only(
        "exaone4",
        metadata=transformer(head_size=None, rope_base=1e6, eps=1e-5),
        source="published configuration of LGAI-EXAONE/EXAONE-4.0-1.2B: every layer alike, norms after each part",
        notes="8 layers of 30; the 32B model's sliding windows are tied to its 64 layers in llama.cpp",
        omit=_NO_BIAS,
    ),
    attention_only(
        "smollm3",
        seed=3,
        metadata=transformer(head_size=None, rope_base=5e6),
        source="published configuration of HuggingFaceTB/SmolLM3-3B: every fourth layer does not rotate",
        notes="8 layers of 36",
        omit=_NO_BIAS,
    ),
    attention_only(
        "hunyuan-dense",
        metadata=transformer(rope_base=1e4, eps=1e-5, rope__scaling__alpha=1000.0),
        source="published configuration of tencent/Hunyuan-1.8B-Instruct: every layer alike, norms of q and k",
        notes="8 layers of 32",
        omit=_NO_BIAS,
    ),
    attention_only(
        "minicpm",
        seed=3,
        metadata=transformer(
            head_size=None,
            eps=1e-5,
            embedding_scale=12.0,
            residual_scale=0.495,
            logit_scale=0.111,
            rope__dimension_count=16,
        ),
        source="published configuration of openbmb/MiniCPM-2B-sft-bf16: every layer alike, scaled embedding, residual and logits",
        notes="8 layers of 40",
        omit=(*_NO_BIAS, "*_exps.weight", "*ffn_gate_inp.weight", "rope_freqs.weight", "rope_factors_*"),
        gains={
            "token_embd.weight": 1 / 12,
            "output.weight": 1 / 9,
            "*attn_output.weight": 2.0,
            "*ffn_down.weight": 2.0,
        },
    ),
    attention_only(
        "granite",
        seed=1,
        metadata=transformer(
            head_size=None,
            eps=1e-5,
            embedding_scale=12.0,
            residual_scale=0.22,
            attention__scale=0.25,
            logit_scale=8.0,
            rope__dimension_count=16,
        ),
        source="published configuration of ibm-granite/granite-3.3-2b-instruct: every layer alike, four scales",
        notes="8 layers of 40; the scale of attention follows from the twin's head size",
        omit=(*_NO_BIAS, "*_exps.weight", "*ffn_gate_inp.weight", "rope_freqs.weight"),
        gains={"token_embd.weight": 1 / 12, "output.weight": 8.0, "*attn_output.weight": 4.0, "*ffn_down.weight": 4.0},
    ),
    attention_only(
        "seed_oss",
        seed=2,
        metadata=transformer(rope_base=1e7),
        source="published configuration of ByteDance-Seed/Seed-OSS-36B-Instruct: every layer alike, biases on q, k and v",
        notes="8 layers of 64",
    ),
    attention_only(
        "arcee",
        seed=1,
        metadata=transformer(head_size=None, eps=1e-5, rope__dimension_count=16),
        source="published configuration of arcee-ai/AFM-4.5B: every layer alike, squared ReLU",
        notes="8 layers of 36",
        omit=(*_NO_BIAS, "rope_freqs.weight", "rope_factors_*"),
    ),
    attention_only(
        "baichuan",
        n_layer=32,
        metadata=transformer(head_size=None, kv_heads=4, rope__dimension_count=16),
        source="published configuration of baichuan-inc/Baichuan2-7B-Chat: every layer alike",
        notes="all 32 layers, since llama.cpp tells the rotating 7B model from the other by their number",
        omit=_NO_BIAS,
    ),
    attention_only(
        "ernie4_5",
        seed=1,
        metadata=transformer(rope_base=5e5, eps=1e-5),
        source="published configuration of baidu/ERNIE-4.5-0.3B-PT: every layer alike",
        notes="8 layers of 18",
        omit=_NO_BIAS,
    ),
    attention_only(
        "pangu-embedded",
        metadata=transformer(head_size=None, rope_base=1.6e7, eps=1e-5),
        source="published configuration of openPangu-Embedded-1B: every layer alike, biases on q, k, v and the output",
        notes="8 layers of 26",
    ),
    attention_only(
        "xverse",
        seed=3,
        metadata=transformer(head_size=None, kv_heads=4, rope__dimension_count=16),
        source="published configuration of xverse/XVERSE-7B: every layer alike",
        notes="8 layers of 32",
        omit=_NO_BIAS,
    ),
    attention_only(
        "maincoder",
        seed=4,
        metadata=transformer(rope_base=1e6, eps=1e-5),
        source="llama.cpp's loader of Maincoder: every layer alike, norms of q and k",
        notes="8 layers",
        omit=_NO_BIAS,
    ),
)

_LAYER_NORM = (
    attention_only(
        "phi2",
        seed=19,
        metadata=transformer(head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope__dimension_count=8),
        source="published configuration of microsoft/phi-2: every layer alike, attention and feed-forward side by side",
        notes="8 layers of 32",
        layout=("fused-qkv",),
    ),
    attention_only(
        "falcon",
        metadata=transformer(head_size=None, kv_heads=1, layer_norm=True, eps=1e-5),
        source="published configuration of tiiuae/falcon-7b: every layer alike, one key head, parts side by side",
        notes="8 layers of 32",
        omit=("*attn_norm_2.*",),
    ),
    attention_only(
        "starcoder2",
        metadata=transformer(head_size=None, layer_norm=True, eps=1e-5, rope_base=1e6),
        source="published configuration of bigcode/starcoder2-3b: every layer alike, biases everywhere",
        notes="8 layers of 30; llama.cpp does not use the window of the configuration",
    ),
    attention_only(
        "stablelm",
        seed=1,
        metadata=transformer(
            head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope__dimension_count=8, use_parallel_residual=False
        ),
        source="published configuration of stabilityai/stablelm-2-1_6b: every layer alike, a quarter of a head rotated",
        notes="8 layers of 24",
        omit=("*attn_?_norm.weight",),
    ),
    attention_only(
        "gpt2",
        seed=13,
        metadata=transformer(head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope_base=None),
        source="published configuration of openai-community/gpt2: every layer alike, learned positions",
        notes="8 layers of 12",
        layout=("fused-qkv",),
    ),
    attention_only(
        "gptneox",
        seed=14,
        metadata=transformer(
            head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope__dimension_count=8, use_parallel_residual=True
        ),
        source="published configuration of EleutherAI/pythia-160m: every layer alike, parts side by side",
        notes="8 layers of 12",
        layout=("fused-qkv",),
    ),
    attention_only(
        "bloom",
        seed=9,
        metadata=transformer(head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope_base=None),
        source="published configuration of bigscience/bloom-560m: every layer alike, distances as biases of attention",
        notes="8 layers of 24",
        layout=("fused-qkv",),
    ),
    attention_only(
        "mpt",
        seed=2,
        metadata=transformer(
            head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope_base=None, attention__max_alibi_bias=8.0
        ),
        source="published configuration of mosaicml/mpt-7b: every layer alike, distances as biases of attention",
        notes="8 layers of 32",
        omit=("*.bias", "position_embd.weight", "*ffn.act.scales", "*act_scale*"),
        layout=("fused-qkv",),
    ),
    attention_only(
        "nemotron",
        seed=4,
        metadata=transformer(head_size=None, layer_norm=True, eps=1e-5, rope__dimension_count=8),
        source="published configuration of nvidia/Minitron-4B-Base: every layer alike, half of a head rotated",
        notes="8 layers of 32",
        omit=(
            "*attn_*.bias_",
            "*ffn_*.bias_",
            "*attn_q.bias",
            "*attn_k.bias",
            "*attn_v.bias",
            "*attn_output.bias",
            "*ffn_up.bias",
            "*ffn_down.bias",
        ),
    ),
    attention_only(
        "command-r",
        metadata=transformer(head_size=None, layer_norm=True, eps=1e-5, rope_base=8e6, logit_scale=1.0),
        source="published configuration of CohereForAI/c4ai-command-r-v01: every layer alike, parts side by side, tied output",
        notes="8 layers of 40; logits are not scaled down, since the embedding is small",
        omit=("*.bias", "*attn_?_norm.weight"),
        gains={"token_embd.weight": 0.3},
    ),
    attention_only(
        "starcoder",
        metadata=transformer(head_size=None, kv_heads=1, layer_norm=True, eps=1e-5, rope_base=None),
        source="published configuration of bigcode/starcoderbase-1b: every layer alike, one key head, learned positions",
        notes="8 layers of 24",
        layout=("fused-qkv",),
    ),
    attention_only(
        "orion",
        seed=10,
        metadata=transformer(head_size=None, layer_norm=True, eps=1e-5, kv_heads=4),
        source="published configuration of OrionStarAI/Orion-14B-Chat: every layer alike",
        notes="8 layers of 40",
        omit=("*attn_q.bias", "*attn_k.bias", "*attn_v.bias"),
    ),
)

_PHI3 = attention_only(
    "phi3",
    seed=6,
    metadata=transformer(head_size=None, kv_heads=4, eps=1e-5, rope__dimension_count=16),
    source="published configuration of microsoft/Phi-3-mini-4k-instruct: every layer alike, fused qkv and feed-forward",
    notes="8 layers of 32; the key of its sliding window is left out, since llama.cpp does not use it",
    omit=("*.bias", "rope_factors_*"),
    layout=("fused-qkv",),
)

# llama.cpp multiplies the embedding by 8, the root of the width. A small one keeps a tied output from repeating the last token.
_GEMMA_GAINS = {"token_embd.weight": 1 / 8}
_TIED_GAINS = {"token_embd.weight": 1 / 20, "output_norm.weight": 5.0}

_WINDOWED = (
    attention_only(
        "gemma",
        seed=4,
        metadata=transformer(),
        source="published configuration of google/gemma-2b-it: every layer alike, tied output",
        notes="8 layers of 18",
        omit=_NO_BIAS,
        gains=_TIED_GAINS,
    ),
    attention_only(
        "gemma2",
        metadata=transformer(
            attention__sliding_window=WINDOW, attn_logit_softcapping=50.0, final_logit_softcapping=30.0
        ),
        source="published configuration of google/gemma-2-2b-it: every second layer has a window, caps on scores and logits",
        notes="8 layers of 26, window 16 in place of 4096",
        omit=_NO_BIAS,
        gains=_TIED_GAINS,
    ),
    attention_only(
        "gemma3",
        seed=3,
        n_layer=12,
        metadata=transformer(rope_base=1e6, attention__sliding_window=WINDOW),
        source="published configuration of google/gemma-3-1b-it: five layers with a window, then one without",
        notes="12 layers of 26, window 16 in place of 512",
        omit=_NO_BIAS,
        gains=_GEMMA_GAINS,
    ),
    attention_only(
        "cohere2",
        seed=1,
        metadata=transformer(
            head_size=None, layer_norm=True, eps=1e-5, rope_base=5e4, attention__sliding_window=WINDOW, logit_scale=1.0
        ),
        source="published configuration of CohereForAI/c4ai-command-r7b-12-2024: three layers with a window, then one without "
        "window and rotation; parts side by side, tied output",
        notes="8 layers of 32, window 16 in place of 4096; logits are not scaled down, since the embedding is small",
        omit=_NO_BIAS,
        gains={"token_embd.weight": 0.3},
    ),
    attention_only(
        "plamo3",
        seed=9,
        n_layer=16,
        metadata=transformer(rope_base=1e6, attention__sliding_window=WINDOW, rope__freq_base_swa=1e4),
        source="published configuration of pfnet/plamo-3-nict-2b-base: seven layers with a window, then one without",
        notes="16 layers of 24, window 16 in place of 2048",
        omit=_NO_BIAS,
    ),
)

RECIPES = (QWEN3, QWEN2, LLAMA, CHATGLM, GLM4, _PHI3, *_SIMPLE, *_LAYER_NORM, *_WINDOWED)
