"""A stage needs the weights of its own layers alone: experts go with their layer, and a prediction head adds no cut."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from agent.commands.folders import twin_folder
from agent.engine.anatomy import Anatomy
from agent.engine.dataflow import analyse
from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.engine.session import Shape
from agent.header.reader import read_model_header
from agent.twin.build import build_twin
from agent.twin.catalog import RECIPES
from tests.agent.package.kit import with_prediction_head

pytest.importorskip("llama_cpp")

_MICRO_BATCH = 16
_LOOPED = ("hrm_text", "nanbeige")
_QUICK = ("qwen3moe", "kimi-linear", "gpt-oss", "arctic", "llama")
_WEIGHT = re.compile(r"^blk\.(\d+)\.(\w+)")


def _anatomy(path: Path) -> tuple[Model, Anatomy]:
    model = Model(path, choose_device("cpu"))
    return model, Anatomy(model, Shape(micro_batch=_MICRO_BATCH))


def _readers(path: Path) -> dict[str, set[int]]:
    """For each weight of a layer, the layers whose nodes read it."""
    model, anatomy = _anatomy(path)
    with model:
        flow = analyse(anatomy.step(_MICRO_BATCH).graphs[0], model.facts.n_layer)
    readers: dict[str, set[int]] = defaultdict(set)
    for index, tensor in enumerate(flow.graph.tensors):
        for source in map(flow.graph.root, tensor.inputs):
            name = flow.graph.tensors[source].name
            if _WEIGHT.match(name):
                readers[name].add(flow.owner[index])
    return readers


def _strangers(readers: dict[str, set[int]]) -> dict[str, set[int]]:
    """The weights that another layer than their own reads."""
    return {name: layers for name, layers in readers.items() if layers != {int(name.split(".")[1])}}


@pytest.mark.parametrize(
    "architecture",
    [name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES if name not in _LOOPED],
)
def test_every_weight_is_read_by_its_own_layer(architecture: str) -> None:
    """Experts, routers, norms and projections: what a stage of layers loads is what its layers read."""
    recipe = RECIPES[architecture]
    readers = _readers(build_twin(recipe, twin_folder()))
    assert {int(name.split(".")[1]) for name in readers} == set(range(recipe.n_layer))
    assert _strangers(readers) == {}
    if "expert_count" in recipe.metadata:
        assert any("exps" in name for name in readers)


@pytest.mark.parametrize("architecture", _LOOPED)
def test_a_block_that_runs_again_is_read_by_another_layer(architecture: str) -> None:
    """Where blocks run more than once, several layers share weights, and this is seen."""
    assert _strangers(_readers(build_twin(RECIPES[architecture], twin_folder())))


@pytest.mark.parametrize("architecture", ["glm4moe", "cohere2moe"])
def test_a_prediction_head_adds_no_cut(architecture: str, tmp_path: Path) -> None:
    """A layer for multi-token prediction lies beyond the last cut: the contract is that of the trunk."""
    path = with_prediction_head(architecture, tmp_path / "head.gguf")
    header = read_model_header(path)
    trunk = RECIPES[architecture].n_layer
    assert (header.block_count, header.trunk_layers) == (trunk + 1, trunk)
    model, anatomy = _anatomy(path)
    with model:
        assert model.facts.n_layer == trunk
        contract = anatomy.contract
    assert contract.n_layer == trunk
    assert contract.legal_cuts == tuple(range(1, trunk))
    plain_model, plain = _anatomy(build_twin(RECIPES[architecture], twin_folder()))
    with plain_model:
        assert plain.contract == contract
