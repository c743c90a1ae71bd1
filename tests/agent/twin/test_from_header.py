"""Twins with the layers of a real header."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from gguf import GGUFReader

from agent.commands.folders import twin_folder
from agent.errors import NoRecipe
from agent.header.layers import layer_kinds_from_metadata, layer_kinds_from_tensors
from agent.header.reader import Header, read_model_header
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from agent.twin.from_header import recipe_of_header
from agent.twin.shards import divide
from tests.agent.conftest import Cli


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


def in_files(architecture: str, count: int) -> Header:
    """The header of a twin in `count` files, whose borders fall into layers."""
    recipe = recipe_for(architecture)
    names = [tensor.name for tensor in header_of(architecture).tensors]
    size = -(-len(names) // count)
    shards = tuple(tuple(names[start : start + size]) for start in range(0, len(names), size))
    return read_model_header(build_twin(dataclasses.replace(recipe, shards=shards), twin_folder()))


def by_file(header: Header) -> list[list[str]]:
    """Names of tensors by file."""
    return [[t.name for t in header.tensors if t.shard == number] for number in range(len(header.shards))]


def test_the_twin_is_in_as_many_files_as_the_model(tmp_path: Path) -> None:
    """Each tensor in the file of the same number, and the weights those of the twin in one file."""
    header = in_files("deepseek32", 5)
    path = build_twin(recipe_of_header(header), tmp_path)
    assert path.name.endswith("-00001-of-00005.gguf")
    twin = read_model_header(path)
    assert len(by_file(header)) == 5
    assert by_file(twin) == by_file(header)
    whole = build_twin(recipe_for("deepseek32"), twin_folder())
    assert {piece.name: piece.data.tobytes() for shard in twin.shards for piece in GGUFReader(shard.path).tensors} == {
        piece.name: piece.data.tobytes() for piece in GGUFReader(whole).tensors
    }


def test_a_twin_of_several_files_is_built_anew_when_one_is_gone(tmp_path: Path) -> None:
    """The first file alone is no twin."""
    recipe = recipe_of_header(in_files("lfm2", 3))
    first = build_twin(recipe, tmp_path)
    (lost,) = tmp_path.glob("*-00003-of-00003.gguf")
    before = lost.read_bytes()
    lost.unlink()
    assert build_twin(recipe, tmp_path) == first
    assert lost.read_bytes() == before


def test_a_tensor_that_only_the_twin_has_goes_with_its_layer() -> None:
    """Into the first file with some of the layer; without a layer, or with one that no file has, into the first."""
    shards = (("token_embd.weight", "blk.0.a"), ("blk.0.b", "blk.1.a"), ("blk.2.a",))
    names = ["blk.0.b", "blk.0.new", "blk.1.new", "blk.2.a", "blk.9.new", "output.weight", "token_embd.weight"]
    assert divide(names, shards) == [
        ["blk.0.new", "blk.9.new", "output.weight", "token_embd.weight"],
        ["blk.0.b", "blk.1.new"],
        ["blk.2.a"],
    ]
    assert divide(names, ()) == [names]


@pytest.mark.slow
def test_a_model_in_several_files_is_certified(cli: Cli, tmp_path: Path) -> None:
    """Every lane, the package's among them, on a twin that llama.cpp loads from as many files as the model has."""
    first = in_files("deepseek32", 5).path
    assert cli("certify", "--twin-of", first, "--receipts", tmp_path).code == 0
    (receipt,) = (json.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*/receipt.json"))
    assert len(receipt["subject"]["files"]) == 5


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
