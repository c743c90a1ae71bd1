"""Twins with the layers of a real header."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agent.commands.folders import twin_folder
from agent.errors import NoRecipe
from agent.header.layers import layer_kinds_from_metadata, layer_kinds_from_tensors
from agent.header.reader import Header, read_model_header
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from agent.twin.from_header import recipe_of_header


def header_of(architecture: str, family: str | None = None) -> Header:
    """The header of a twin of the catalogue, which stands for a real model's."""
    return read_model_header(build_twin(recipe_for(architecture, family=family), twin_folder()))


def longer(header: Header, n_layer: int, **keys: object) -> Header:
    """The same header with another number of layers and other keys."""
    metadata = {**header.metadata, header.key("block_count"): n_layer}
    metadata |= {header.key(name.replace("__", ".")): value for name, value in keys.items()}  # type: ignore[misc]
    return dataclasses.replace(header, metadata=metadata)


@pytest.mark.parametrize(
    "architecture",
    ["qwen3", "lfm2", "kimi-linear", "nemotron_h", "falcon-h1", "gemma3", "hrm_text", "deci", "deepseek4"],
)
def test_the_twin_has_the_layers_of_the_header(architecture: str, tmp_path: Path) -> None:
    """Metadata and tensor names of the twin describe the same layers as the header's."""
    header = header_of(architecture)
    twin = read_model_header(build_twin(recipe_of_header(header), tmp_path))
    assert layer_kinds_from_metadata(twin) == layer_kinds_from_metadata(header)
    assert layer_kinds_from_tensors(twin) == layer_kinds_from_tensors(header)


def test_a_deeper_model_with_another_interval_is_followed(tmp_path: Path) -> None:
    """A hybrid of 24 layers with attention at every sixth becomes a twin of just these layers."""
    recipe = recipe_of_header(longer(header_of("qwen3next"), 24, full_attention_interval=6))
    assert recipe.pattern == "RRRRRA" * 4
    twin = read_model_header(build_twin(recipe, tmp_path))
    assert "".join(layer_kinds_from_metadata(twin) or ()) == recipe.pattern


def test_counts_a_layer_keep_zeros_and_order() -> None:
    """Per-layer KV heads shrink to the twin's size; zeros stay zeros and a larger count stays larger."""
    counts = (*(0 if layer % 4 else 16 for layer in range(12)), 4, 0)
    recipe = recipe_of_header(longer(header_of("jamba"), 14, attention__head_count_kv=counts))
    sized = recipe.metadata["attention.head_count_kv"]
    assert isinstance(sized, tuple)
    assert [bool(count) for count in sized] == [bool(count) for count in counts]
    assert max(sized[:12]) >= sized[12] > 0


def test_blocks_that_run_more_often_make_more_layers(tmp_path: Path) -> None:
    """Three loops of six blocks are eighteen layers, with six blocks of weights."""
    recipe = recipe_of_header(longer(header_of("nanbeige"), 6, num_loops=3))
    assert recipe.pattern == "A" * 18
    twin = read_model_header(build_twin(recipe, tmp_path))
    assert twin.block_count == 6
    assert len(layer_kinds_from_metadata(twin) or ()) == len(layer_kinds_from_tensors(twin)) == 18


def test_prediction_layers_are_left_out() -> None:
    """Layers for next-token prediction are no part of the twin."""
    recipe = recipe_of_header(longer(header_of("glm4"), 9, nextn_predict_layers=1))
    assert recipe.n_layer == 8
    assert "nextn_predict_layers" not in recipe.metadata


def test_of_two_recipes_the_nearer_one_is_taken() -> None:
    """GLM-4.7-Flash is a deepseek2 with a query rank, unlike Coder-V2-Lite."""
    flash = recipe_of_header(header_of("deepseek2", "glm47-flash"))
    lite = recipe_of_header(header_of("deepseek2"))
    assert "attention.q_lora_rank" in flash.metadata
    assert "attention.q_lora_rank" not in lite.metadata


def test_an_architecture_without_a_recipe_is_named() -> None:
    """There is no twin of an architecture that the catalogue does not have."""
    with pytest.raises(NoRecipe, match="no-such"):
        recipe_of_header(dataclasses.replace(header_of("qwen3"), architecture="no-such"))
