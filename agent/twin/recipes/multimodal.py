"""Language models of multimodal families: positions of several axes, extra inputs at the first layers."""

from __future__ import annotations

from agent.twin.recipes.common import WINDOW, attention_only, experts, transformer

QWEN3VLMOE = attention_only(
    "qwen3vlmoe",
    seed=12,
    metadata={
        **transformer(rope_base=5e6, rope__dimension_sections=(6, 5, 5, 0), n_deepstack_layers=3),
        **experts(),
    },
    source="published configuration of Qwen/Qwen3-VL-30B-A3B-Instruct: every layer alike, three axes of position, "
    "deepstack inputs at the first three layers",
    notes="8 layers of 48, 2 of 8 experts in place of 8 of 128",
    omit=("*.bias",),
)


QWEN3VL = attention_only(
    "qwen3vl",
    metadata=transformer(rope_base=5e6, rope__dimension_sections=(6, 5, 5, 0), n_deepstack_layers=3),
    source="published configuration of Qwen/Qwen3-VL-2B-Instruct: every layer alike, three axes of position, deepstack inputs "
    "at the first three layers",
    notes="8 layers of 28",
    omit=("*.bias",),
)

QWEN2VL = attention_only(
    "qwen2vl",
    seed=1,
    metadata=transformer(head_size=None, rope_base=1e6, rope__dimension_sections=(2, 3, 3, 0)),
    source="published configuration of Qwen/Qwen2-VL-2B-Instruct: every layer alike, three axes of position",
    notes="8 layers of 28",
    omit=("output.bias",),
)

HUNYUAN_VL = attention_only(
    "hunyuan_vl",
    metadata=transformer(rope_base=1e4, eps=1e-5, rope__dimension_sections=(4, 4, 4, 4), rope__scaling__alpha=1000.0),
    source="published configuration of tencent/HunyuanOCR: every layer alike, four axes of position",
    notes="8 layers of 24",
    omit=("*.bias",),
)

GEMMA4 = attention_only(
    "gemma4",
    seed=3,
    n_layer=20,
    metadata=transformer(
        rope_base=1e6,
        attention__sliding_window=WINDOW,
        attention__sliding_window_pattern=tuple(layer % 5 != 4 for layer in range(20)),
        attention__shared_kv_layers=10,
        attention__key_length_swa=16,
        attention__value_length_swa=16,
        embedding_length_per_layer_input=16,
        rope__freq_base_swa=1e4,
        rope__dimension_count=32,
        rope__dimension_count_swa=16,
        final_logit_softcapping=30.0,
    ),
    source="published configuration of google/gemma-4-E2B-it: four layers with a window, then one without; the upper layers "
    "read keys and values of lower ones; an input of its own for each layer",
    notes="20 layers of 35, the upper 10 share in place of 20; window 16 in place of 512",
    gains={"token_embd.weight": 1 / 8, "per_layer_token_embd.weight": 1.0},
)

GEMMA3N = attention_only(
    "gemma3n",
    n_layer=25,
    metadata=transformer(embedding=64, rope_base=1e6, attention__sliding_window=WINDOW),
    source="published configuration of google/gemma-3n-E2B-it: four layers with a window, then one without; layers from 20 on "
    "read keys and values of lower ones; four streams",
    notes="25 layers of 30; llama.cpp fixes where sharing begins and the width of a layer's own input",
    gains={"token_embd.weight": 1 / 8},
)

PADDLEOCR = attention_only(
    "paddleocr",
    seed=1,
    metadata=transformer(rope_base=5e5, eps=1e-5, rope__dimension_sections=(6, 5, 5, 0)),
    source="published configuration of PaddlePaddle/PaddleOCR-VL: every layer alike, three axes of position",
    notes="8 layers of 18",
    omit=("*.bias",),
)

COGVLM = attention_only(
    "cogvlm",
    metadata=transformer(head_size=None, kv_heads=4, eps=1e-5),
    source="published configuration of THUDM/cogvlm-chat-hf: every layer alike, with weights of its own for images",
    notes="8 layers of 32; text alone is decoded, so the weights for images are in the file and not used",
    omit=("rope_freqs.weight",),
)

CHAMELEON = attention_only(
    "chameleon",
    seed=1,
    metadata=transformer(head_size=None, eps=1e-5, swin_norm=False),
    vocabulary=8448,
    source="published configuration of facebook/chameleon-7b: every layer alike, norms of q and k by head",
    notes="8 layers of 32; llama.cpp takes the tokens 4 to 8195 for those of images and never lets them win, so there are more",
    omit=("*attn_?.bias",),
)

RECIPES = (QWEN3VLMOE, QWEN3VL, QWEN2VL, HUNYUAN_VL, GEMMA4, GEMMA3N, PADDLEOCR, COGVLM, CHAMELEON)
