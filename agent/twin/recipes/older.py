"""Dense transformers of the first years, and others that do one thing in a way of their own."""

from __future__ import annotations

from agent.twin.recipe import Recipe, where
from agent.twin.recipes.common import attention_only, transformer

_NO_BIAS = ("*.bias",)
# The last token's own embedding wins where it is the output matrix too, so it is made small and the last norm large.
_TIED_GAINS = {"token_embd.weight": 1 / 20, "output_norm.weight": 5.0}

_ROTATED = (
    attention_only(
        "qwen",
        metadata=transformer(head_size=None, kv_heads=4, feed_forward=256),
        source="published configuration of Qwen/Qwen-7B: every layer alike, fused qkv with bias",
        notes="8 layers of 32; the length of the feed-forward counts gate and up together, as in the family",
    ),
    attention_only(
        "plamo",
        metadata=transformer(head_size=None, rope_base=None),
        source="published configuration of pfnet/plamo-13b: every layer alike, parts side by side under one norm",
        notes="8 layers of 40",
        omit=_NO_BIAS,
    ),
    attention_only(
        "codeshell",
        metadata=transformer(
            head_size=None, layer_norm=True, eps=1e-5, rope__scaling__type="linear", rope__scaling__factor=1.0
        ),
        source="published configuration of WisdomShell/CodeShell-7B: every layer alike, grouped keys, biases everywhere",
        notes="8 layers of 42",
        layout=("fused-qkv",),
    ),
    attention_only(
        "jais2",
        metadata=transformer(head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope__dimension_count=16),
        source="llama.cpp's loader and converter of Jais 2: every layer alike, squared activation, biases everywhere",
        notes="8 layers of 32",
    ),
    attention_only(
        "apertus",
        metadata=transformer(
            head_size=None,
            rope_base=1.2e7,
            eps=1e-5,
            xielu__alpha_n=(0.8,) * 8,
            xielu__alpha_p=(0.8,) * 8,
            xielu__beta=(0.5,) * 8,
            xielu__eps=(-1e-6,) * 8,
        ),
        source="published configuration of swiss-ai/Apertus-8B-Instruct-2509: every layer alike, norms of q and k, an "
        "activation with numbers of its own for each layer, rope frequency factors",
        notes="8 layers of 32",
        omit=("*.bias",),
    ),
    attention_only(
        "talkie",
        seed=7,
        metadata=transformer(head_size=None, kv_heads=4, eps=1.1920929e-07, logit_scale=1.0),
        source="llama.cpp's loader and converter of lewtun/talkie-1930-13b-it-hf: every layer alike, norms without weights, the "
        "embedding comes in again at every layer",
        notes="8 layers of 40",
        omit=_NO_BIAS,
    ),
    attention_only(
        "bitnet",
        seed=3,
        metadata=transformer(
            head_size=None, rope_base=5e5, eps=1e-5, rope__scaling__type="linear", rope__scaling__factor=1.0
        ),
        source="published configuration of microsoft/bitnet-b1.58-2B-4T: every layer alike, norms inside of both parts, tied "
        "output",
        notes="8 layers of 30; float32 weights in place of ternary ones",
        gains=_TIED_GAINS,
    ),
)

_DISTANCES = (
    attention_only(
        "refact",
        metadata=transformer(head_size=None, kv_heads=1, rope_base=None, eps=1e-5),
        source="published configuration of smallcloudai/Refact-1_6-base: every layer alike, one key head, distances as biases of "
        "attention",
        notes="8 layers of 32",
        omit=("*.bias", "rope_freqs.weight"),
    ),
    attention_only(
        "jais",
        seed=3,
        metadata=transformer(
            head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope_base=None, attention__max_alibi_bias=8.0
        ),
        source="published configuration of inceptionai/jais-family-590m: every layer alike, distances as biases of attention",
        notes="8 layers of 18",
    ),
)

# Layers that differ in their sizes: heads and feed-forward grow with depth.
_GROWING = (2, 2, 2, 4, 4, 4, 4, 4)

OPENELM = attention_only(
    "openelm",
    seed=1,
    metadata=transformer(
        heads=_GROWING,
        kv_heads=tuple(heads // 2 for heads in _GROWING),
        rope__dimension_count=32,
    )
    | {"feed_forward_length": (64, 64, 96, 96, 128, 128, 160, 160)},
    source="published configuration of apple/OpenELM-270M: heads and feed-forward grow with depth, norms of q and k, tied output",
    notes="8 layers of 16",
    gains=_TIED_GAINS,
)

# A: attention, N: a linear map in place of attention (8, 11), or a feed-forward alone (5)
_DECI = "AAAAANAANAANAAAA"

DECI = Recipe(
    architecture="deci",
    n_layer=len(_DECI),
    pattern=_DECI,
    metadata=transformer(
        heads=tuple(0 if layer == 5 else 4 for layer in range(len(_DECI))),
        kv_heads=where(_DECI, "A", 2),
        head_size=16,
        rope_base=5e5,
        eps=1e-5,
        rope__dimension_count=16,
    )
    | {"feed_forward_length": tuple(64 if layer % 3 else 128 for layer in range(len(_DECI)))},
    source="llama.cpp's loader and converter of nvidia/Llama-3_1-Nemotron-51B-Instruct: some layers without attention, some with "
    "a linear map in its place, feed-forward of several sizes",
    notes="16 layers of 80, with one and two such layers; where they are is not the family's",
    omit=("*.bias",),
)

_ADAPTERS = tuple(range(11, 256, 16))  # the tokens that choose one: often enough that a prompt has some

GRANITE_SWITCH = attention_only(
    "graniteswitch",
    metadata=transformer(
        head_size=None,
        eps=1e-5,
        embedding_scale=12.0,
        residual_scale=0.22,
        attention__scale=0.25,
        logit_scale=8.0,
        rope__dimension_count=16,
        adapters__count=len(_ADAPTERS),
        adapters__lora_rank=4,
        adapters__token_ids_activate=_ADAPTERS,
        adapters__token_ids_substitute=tuple(token + 1 for token in _ADAPTERS),
        adapters__router_gain=15.0,
        expert_used_count=0,
    ),
    source="llama.cpp's loader and converter of ibm-granite/granite-switch-4.1-3b-preview: every layer alike, each with low-rank "
    "adapters, of which a token in the text chooses one from there on",
    notes="8 layers of 40, 16 adapters; the first slot, which is zero in the family, is not",
    gains={"token_embd.weight": 1 / 12, "output.weight": 8.0, "*attn_output.weight": 4.0, "*ffn_down.weight": 4.0},
)

RECIPES = (*_ROTATED, *_DISTANCES, OPENELM, DECI, GRANITE_SWITCH)
