"""llama.cpp's architectures, by what their layers keep between tokens (pin: `llama-arch.cpp`, `src/models/*.cpp`).

An architecture that is not listed is unknown: nothing is assumed about it, and reuse of its state stays off.
"""

from __future__ import annotations

RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
"""Every layer is recurrent (`llm_arch_is_recurrent`)."""

BOTH = frozenset({"falcon-h1", "inkling"})
"""Every trunk layer has attention and recurrent state. `inkling` is in the patch queue, not in the pin."""

BY_HEAD_COUNT_KV = frozenset(
    {"bailingmoe3", "glm5-next", "granitehybrid", "jamba", "kimi-k3", "kimi-linear", "lfm2", "lfm2moe", "plamo2"}
)
"""A layer is recurrent where `attention.head_count_kv` is 0."""

BY_HEAD_COUNT_KV_AND_FF = frozenset({"nemotron_h", "nemotron_h_moe"})
"""As above, but a layer with a feed-forward block has neither."""

BY_INTERVAL = {"minimax-01": 8, "qwen35": 4, "qwen35moe": 4, "qwen3next": 4, "qwen4exp": 4}
"""`attention.recurrent_layers`, else every `full_attention_interval`-th layer is attention (default given here)."""

COMPRESSED = frozenset({"deepseek4"})
"""Attention in every layer, over a window of plain keys; where `attention.compress_ratios` is not 0, also over compressed ones,
and what is not compressed yet is recurrent state."""

HYBRID = BOTH | BY_HEAD_COUNT_KV | BY_HEAD_COUNT_KV_AND_FF | COMPRESSED | frozenset(BY_INTERVAL)

LOOPED = frozenset({"hrm_text", "nanbeige"})
"""Blocks run more than once, and every run has keys and values of its own: fewer blocks in the file than layers."""

ENCODER = frozenset(
    {
        "bert", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "llama-embed", "modern-bert", "neo-bert",
        "nomic-bert", "nomic-bert-moe", "t5encoder",
    }
)  # fmt: skip
"""Embeds or classifies; does not generate."""

ENCODER_DECODER = frozenset({"t5"})
DIFFUSION = frozenset({"dream", "llada", "llada-moe", "rnd1"})
DRAFT = frozenset({"dflash", "eagle3", "gemma4-assistant"})
"""Draft heads: they work only beside their target model."""

AUDIO = frozenset({"pockettts", "qwen3tts", "wavtokenizer-dec"})

DENSE = frozenset(
    {
        "afmoe", "apertus", "arcee", "arctic", "baichuan", "bailingmoe", "bailingmoe2", "bitnet", "bloom",
        "chameleon", "chatglm", "codeshell", "cogvlm", "cohere2", "cohere2moe", "command-r", "dbrx", "deci",
        "deepseek", "deepseek2", "deepseek2-ocr", "deepseek32", "dots1", "dots3note", "ernie4_5", "ernie4_5-moe",
        "exaone", "exaone-moe", "exaone4", "falcon", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "glm-dsa",
        "glm4", "glm4moe", "gpt-oss", "gpt2", "gptj", "gptneox", "granite", "granite_swa", "granitemoe",
        "graniteswitch", "grok", "grovemoe", "hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "hy_v3", "hy_v4",
        "internlm2", "jais", "jais2", "laguna", "llama", "llama4", "maincoder", "maple", "mellum", "mimo2", "minicpm",
        "minicpm3", "minimax-m2", "minimax-m3", "mistral3", "mistral4", "mpt", "muse-glimmer", "nemotron", "olmo",
        "olmo2", "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3", "phimoe", "plamo",
        "plamo3", "plm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe",
        "refact", "seed_oss", "smallthinker", "smollm3", "spark2_5", "stablelm", "starcoder", "starcoder2", "step35",
        "talkie", "xverse",
    }
)  # fmt: skip
"""Causal, attention in every layer; where `attention.head_count_kv` is 0 a layer has none (deci)."""

KNOWN = RECURRENT | HYBRID | LOOPED | ENCODER | ENCODER_DECODER | DIFFUSION | DRAFT | AUDIO | DENSE
