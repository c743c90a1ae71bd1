"""Models that run the same blocks more than once: fewer blocks in the file than layers in the graph and in the cache."""

from __future__ import annotations

from agent.twin.recipes.common import attention_only, transformer

NANBEIGE = attention_only(
    "nanbeige",
    seed=1,
    n_layer=16,
    metadata={
        **transformer(head_size=None, rope_base=7e7, eps=1e-5, num_loops=2, skip_loop_final_norm=False),
        "block_count": 8,
    },
    source="llama.cpp's loader and converter of Nanbeige/Nanbeige4.2-3B: all blocks run twice, with a norm between",
    notes="8 blocks, which make 16 layers",
    omit=("*.bias", "rope_freqs.weight"),
)

HRM_TEXT = attention_only(
    "hrm_text",
    n_layer=12,
    metadata=transformer(
        head_size=None,
        embedding_scale=8.0,
        rope__dimension_count=16,
        hrm__layers_per_stack=2,
        hrm__h_cycles=2,
        hrm__l_cycles=2,
        hrm__prefix_lm=False,
    ),
    source="llama.cpp's loader and converter of danish-foundation-models/DFM-Mimir: a low stack runs twice, then a high one, and "
    "all of that twice; what both made is added again and again",
    notes="two stacks of 2 blocks, which make 12 layers",
    omit=("*.bias",),
    gains={"token_embd.weight": 1 / 8},
)

RECIPES = (NANBEIGE, HRM_TEXT)
