"""Recipes and weights, without llama.cpp."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agent.twin.catalog import FAMILY_RECIPES, RECIPES
from agent.twin.layout import stored_as
from agent.twin.metadata import metadata_of
from agent.twin.recipe import Recipe
from agent.twin.weights import fill

_EVERY = [*RECIPES.values(), *FAMILY_RECIPES.values()]


@pytest.mark.parametrize("recipe", _EVERY, ids=lambda recipe: recipe.architecture)
def test_recipe_is_deep_enough_and_says_where_it_comes_from(recipe: Recipe) -> None:
    """At least eight layers, tiny widths, a source in words."""
    assert recipe.n_layer >= 8
    assert int(str(recipe.metadata["embedding_length"])) <= 256
    assert 256 <= recipe.vocabulary <= (8448 if recipe.architecture == "chameleon" else 1024)
    assert len(recipe.source) > 20


@pytest.mark.parametrize(
    ("architecture", "attention"),
    [
        ("jamba", [7, 21]),
        ("kimi-linear", [3, 7, 11, 15, 19, 23, 26]),
        ("granitehybrid", [10, 13, 17, 27]),
        ("lfm2", [2, 5, 8, 10, 12, 14]),
        ("qwen3next", [3, 7, 11]),
    ],
)
def test_hybrid_patterns_are_those_of_the_families(architecture: str, attention: list[int]) -> None:
    """Attention sits where the published configurations put it."""
    pattern = RECIPES[architecture].pattern
    assert [layer for layer, letter in enumerate(pattern) if letter == "A"] == attention


@pytest.mark.parametrize("pattern", ["AAAAAAA", "AAAAAAAX", ""])
def test_wrong_patterns_are_refused(pattern: str) -> None:
    """One known letter a layer, no more and no less."""
    with pytest.raises(ValueError, match="pattern"):
        replace(RECIPES["qwen3"], pattern=pattern)


def test_digest_follows_what_shapes_the_file() -> None:
    """Metadata, weights and layout change the digest; words do not."""
    recipe = RECIPES["qwen3"]
    assert len(recipe.digest) == 64
    assert replace(recipe, notes="x", source="a longer sentence than before").digest == recipe.digest
    others = [
        replace(recipe, seed=99),
        replace(recipe, omit=()),
        replace(recipe, layout=("fused-qkv",)),
        replace(recipe, gains={"*": 2.0}),
        replace(recipe, vocabulary=300),
        replace(recipe, metadata={**recipe.metadata, "context_length": 513}),
    ]
    assert len({recipe.digest, *(other.digest for other in others)}) == 1 + len(others)


def test_digests_are_distinct() -> None:
    """No two recipes describe the same file, but for families that share one."""
    assert len({recipe.digest for recipe in RECIPES.values()}) == len(RECIPES)


def test_no_window_where_the_family_has_none() -> None:
    """A key that files of the real family lack would teach the policies something false."""
    for architecture in ("lfm2", "qwen3", "llama", "jamba", "granitehybrid"):
        assert not [key for key in metadata_of(RECIPES[architecture]) if "sliding" in key or "recurrent_layers" in key]


def test_weights_are_the_same_on_every_machine() -> None:
    """The first numbers of one tensor, written down: they may never change with numpy or the platform."""
    data = fill("blk.0.attn_q.weight", (4, 2))
    assert data.shape == (2, 4)
    assert data.dtype == np.float32
    assert [float(value).hex() for value in data[0][:2]] == ["-0x1.56fc940000000p-3", "0x1.3edf8e0000000p-2"]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("blk.0.ssm_a", -2.0, -0.1),
        ("blk.0.ssm_dt.bias", -4.0, -0.5),
        ("rope_freqs.weight", 1.0, 8.0),
        ("blk.0.attn_norm.weight", 0.3, 1.7),
        ("blk.0.ffn_norm", 0.3, 1.7),
        ("blk.0.time_mix_lerp_fused.weight", 0.1, 0.9),
    ],
)
def test_special_weights_stay_in_their_range(name: str, low: float, high: float) -> None:
    """Decays are negative, norms near one, time steps and frequency factors sane."""
    data = fill(name, (64, 64))
    assert low <= data.min()
    assert data.max() <= high


def test_ids_are_whole_numbers_and_none_comes_twice_in_a_row() -> None:
    """The table of experts by token: two different ones of eight for each token, and not the same for all."""
    ids = fill("blk.0.ffn_gate_tid2eid.weight", (2, 256))
    assert ids.dtype == np.int32
    assert ids.shape == (256, 2)
    assert set(ids.flat) == set(range(8))
    assert all(len(set(row)) == 2 for row in ids.tolist())


def test_keys_that_llama_cpp_names_without_an_architecture() -> None:
    """They are written as they are; all others get the architecture's name."""
    keys = metadata_of(RECIPES["apertus"])
    assert "xielu.alpha_n" in keys
    assert "apertus.xielu.alpha_n" not in keys
    assert "apertus.embedding_length" in keys


def test_a_matrix_keeps_the_variance_of_its_input() -> None:
    """Weights of a matrix have the standard deviation of one over the root of its fan-in."""
    data = fill("blk.0.ffn_up.weight", (64, 512))
    assert data.std() == pytest.approx(1 / 8, rel=0.02)
    assert abs(data.mean()) < 0.01
    assert fill("blk.0.ffn_up.weight", (64, 512), gains={"*ffn_up*": 3.0}).std() == pytest.approx(3 / 8, rel=0.02)


def test_names_and_seeds_choose_the_numbers() -> None:
    """Two names, or two seeds of one name, share no weights."""
    one, two, three = fill("a.weight", (8, 8)), fill("b.weight", (8, 8)), fill("a.weight", (8, 8), seed=1)
    assert not np.array_equal(one, two)
    assert not np.array_equal(one, three)


def test_layouts_keep_the_number_of_weights() -> None:
    """Fusing q, k, v and splitting gate and up move weights and lose none."""
    shapes = {
        "blk.0.attn_q.weight": (64, 128),
        "blk.0.attn_k.weight": (64, 32),
        "blk.0.attn_v.weight": (64, 32),
        "blk.0.attn_q.bias": (128,),
        "blk.0.attn_k.bias": (32,),
        "blk.0.attn_v.bias": (32,),
        "blk.0.ffn_gate_up_exps.weight": (64, 96, 8),
        "blk.0.attn_q_norm.weight": (32,),
    }
    stored = stored_as(("fused-qkv", "split-gate-up"), shapes)
    assert stored == {
        "blk.0.attn_qkv.weight": (64, 192),
        "blk.0.attn_qkv.bias": (192,),
        "blk.0.ffn_gate_exps.weight": (64, 48, 8),
        "blk.0.ffn_up_exps.weight": (64, 48, 8),
        "blk.0.attn_q_norm.weight": (32,),
    }
