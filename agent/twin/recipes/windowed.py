"""Transformers in which some layers see a window of tokens and others all of them."""

from __future__ import annotations

from agent.twin.recipes.common import WINDOW, attention_only, experts, transformer

_NO_BIAS = ("*.bias",)


def three_of_four(n_layer: int = 8) -> tuple[bool, ...]:
    """Windows in three layers, then a layer without."""
    return tuple(layer % 4 != 3 for layer in range(n_layer))


def only_experts(dense: int, n_layer: int = 8) -> tuple[str, ...]:
    """Leaves out what a layer does not have: experts in the first `dense` layers, the dense feed-forward in the others.

    For loaders that offer both to every layer.
    """
    return (
        *(f"blk.{layer}.*_{part}" for layer in range(dense) for part in ("exps.weight", "shexp.weight")),
        *(f"blk.{layer}.{part}" for layer in range(dense) for part in ("ffn_gate_inp.weight", "exp_probs_b*")),
        *(f"blk.{layer}.ffn_{part}.weight" for layer in range(dense, n_layer) for part in ("gate", "up", "down")),
    )


_DENSE = (
    attention_only(
        "muse-glimmer",
        seed=1,
        metadata=transformer(
            rope_base=1e6,
            attention__sliding_window=WINDOW,
            attention__sliding_window_pattern=three_of_four(),
            final_logit_softcapping=30.0,
            logit_scale=1.0,
        ),
        source="llama.cpp's loader and converter of meta-models/Muse-Glimmer-30B: three layers with a window, then one without; "
        "gated attention, norms before and after each part",
        notes="8 layers of 52, window 16",
        omit=_NO_BIAS,
    ),
    attention_only(
        "spark2_5",
        metadata=transformer(
            rope_base=1e6,
            attention__sliding_window=WINDOW,
            attention__sliding_window_pattern=three_of_four(),
            rope__freq_base_swa=1e4,
            rope__dimension_count=16,
            rope__dimension_count_swa=32,
        ),
        source="llama.cpp's loader and converter of XHToken/Spark-X2.5-1.7B: windows by a list, fewer rotated dimensions where "
        "there is none, attention gated by head",
        notes="8 layers of 28, window 16; where the windows are is not the family's",
        omit=_NO_BIAS,
    ),
    attention_only(
        "granite_swa",
        seed=1,
        metadata=transformer(
            head_size=None,
            eps=1e-5,
            embedding_scale=12.0,
            residual_scale=0.22,
            attention__scale=0.25,
            logit_scale=8.0,
            rope__dimension_count=16,
            attention__sliding_window=WINDOW,
            attention__sliding_window_pattern=tuple(layer % 4 != 0 for layer in range(8)),
            attention__rope_pattern=tuple(layer % 4 != 0 for layer in range(8)),
        ),
        source="llama.cpp's loader and converter of GraniteSWAForCausalLM: full attention without rotation at every fourth layer "
        "from layer 0, windows at the others, sinks, four scales",
        notes="8 layers, window 16 in place of 128, without experts",
        omit=("*.bias", "rope_freqs.weight"),
        gains={"token_embd.weight": 1 / 12, "output.weight": 8.0, "*attn_output.weight": 4.0, "*ffn_down.weight": 4.0},
    ),
)

_EXPERTS = (
    attention_only(
        "maple",
        seed=6,
        metadata={
            **transformer(
                rope__dimension_count=16,
                attention__sliding_window=WINDOW,
                attention__sliding_window_pattern=three_of_four(),
                swiglu_clamp_exp=(7.0,) * 8,
            ),
            **experts(),
        },
        source="llama.cpp's loader and converter of deepgrove/maple-preview: windows by a list, clamped experts, norms of q "
        "and k",
        notes="8 layers of 24, 2 of 8 experts, window 16; where the windows are is not the family's",
        omit=_NO_BIAS,
    ),
    attention_only(
        "cohere2moe",
        seed=7,
        metadata={
            **transformer(
                head_size=None,
                layer_norm=True,
                eps=1e-5,
                rope_base=5e4,
                attention__sliding_window=WINDOW,
                attention__sliding_window_pattern=three_of_four(),
                logit_scale=1.0,
                leading_dense_block_count=1,
            ),
            **experts(expert_gating_func=2, expert_shared_count=1, expert_weights_norm=True),
        },
        source="llama.cpp's loader and converter of CohereLabs/North-Mini-Code-1.0: three layers with a window, then one without "
        "window and rotation; parts side by side, first layer dense",
        notes="8 layers of 49, 2 of 8 experts, window 16; without the layer for multi-token prediction",
        omit=("*attn_*.bias",),
        layout=("split-gate-up",),
    ),
    attention_only(
        "mimo2",
        metadata={
            **transformer(
                kv_heads=tuple(2 if window else 1 for window in (False, *three_of_four(7))),
                rope_base=5e6,
                eps=1e-5,
                attention__value_length=16,
                attention__sliding_window=WINDOW,
                attention__sliding_window_pattern=(False, *three_of_four(7)),
                attention__value_scale=0.707,
                rope__freq_base_swa=1e4,
                rope__dimension_count=16,
            ),
            **experts(expert_gating_func=2, expert_weights_norm=True),
        },
        source="llama.cpp's loader and converter of XiaomiMiMo/MiMo-V2-Flash: full attention first, then windows with sinks and "
        "more key heads, values narrower than keys, first layer dense",
        notes="8 layers of 48, 2 of 8 experts, window 16; without the layers for multi-token prediction",
        omit=("*attn_?.bias", "blk.[04].attn_sinks.weight", *only_experts(1)),
    ),
    attention_only(
        "step35",
        metadata={
            **transformer(
                heads=tuple(2 if layer % 4 == 0 else 4 for layer in range(8)),
                rope_base=5e6,
                eps=1e-5,
                attention__sliding_window=WINDOW,
                attention__sliding_window_pattern=tuple(layer % 4 != 0 for layer in range(8)),
                rope__freq_base_swa=1e4,
                rope__dimension_count=32,
                leading_dense_block_count=3,
                moe_every_n_layers=1,
                swiglu_clamp_exp=(*(0.0,) * 6, 7.0, 7.0),
                swiglu_clamp_shexp=(*(0.0,) * 6, 16.0, 16.0),
            ),
            **experts(
                expert_gating_func=2,
                expert_shared_feed_forward_length=32,
                expert_weights_norm=True,
                expert_weights_scale=3.0,
            ),
        },
        source="llama.cpp's loader and converter of stepfun-ai/Step-3.5-Flash: full attention at every fourth layer from layer 0 "
        "with half of the dimensions rotated, windows with more heads at the others, gates by head, three layers dense",
        notes="8 layers of 45, 2 of 8 experts, window 16; without the layers for multi-token prediction",
        omit=("*attn_?.bias", *only_experts(3)),
    ),
    attention_only(
        "smallthinker",
        metadata={
            **transformer(rope_base=1.5e6, attention__sliding_window=4096, feed_forward=32),
            **experts(expert_gating_func=2),
        },
        source="published configuration of PowerInfer/SmallThinker-21BA3B-Instruct: one layer without window and rotation, "
        "then three with; experts are chosen before attention",
        notes="8 layers of 52, 2 of 8 experts in place of 6 of 64; the window is 4096 tokens in llama.cpp, which is not passed",
        omit=_NO_BIAS,
    ),
)

RECIPES = (*_DENSE, *_EXPERTS)
