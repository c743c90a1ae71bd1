"""Every twin is alive: a fault in any layer, state or position would be seen on it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from agent.twin.build import build_twin
from agent.twin.catalog import FAMILY_RECIPES, RECIPES
from agent.twin.recipe import Recipe

pytest.importorskip("llama_cpp")

_TIER_1 = (
    "chatglm",
    "deepseek2",
    "deepseek32",
    "falcon-h1",
    "glm4",
    "granitehybrid",
    "jamba",
    "kimi-linear",
    "laguna",
    "lfm2",
    "llama",
    "mamba",
    "mamba2",
    "minimax-m2",
    "qwen2",
    "qwen3",
    "qwen3moe",
    "qwen3next",
    "qwen3vlmoe",
    "rwkv6",
    "rwkv7",
)
_ALL: dict[str, Recipe] = {**RECIPES, **{f"{name} (family)": recipe for name, recipe in FAMILY_RECIPES.items()}}

# Architectures that run the same blocks more than once: so many blocks of weights.
_LOOPED = {"hrm_text": 4, "nanbeige": 8}
# A cache beside those of the layers: the router that chooses an adapter.
_BEYOND = {"graniteswitch": {8}}
# deepseek4 keeps its compressed caches in groups of 4 and 128 tokens: some of either are whole, and the next ones fill both.
_MEASURED_AFTER = {"deepseek4": ("--prefix", "201", "--following", "55")}
# Its single tokens see over 512 cells, where llama.cpp's CPU attention divides them among its threads.
_DEPENDS_ON_THREADS = {"deepseek4"}

# A change below this share of the logits' standard deviation could be taken for the noise of floating point (1e-6 to 1e-3).
_SEEN = 5e-3

parametrize_all = pytest.mark.parametrize(
    "name", [name if name in _TIER_1 else pytest.param(name, marks=pytest.mark.slow) for name in _ALL]
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the twins of this test run are built and measured: one place for all workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "twins"


@cache
def _vitals(name: str, folder: Path) -> dict[str, Any]:
    path = build_twin(_ALL[name], folder)
    measured = path.with_suffix(".json")
    with FileLock(measured.with_suffix(".measuring")):
        if not measured.exists():
            measured.write_text(_measure(path, _MEASURED_AFTER.get(name, ())), encoding="utf-8")
    vitals: dict[str, Any] = json.loads(measured.read_text(encoding="utf-8"))
    return vitals


def _measure(path: Path, options: tuple[str, ...]) -> str:
    child = subprocess.run(
        [sys.executable, "-m", "agent.twin.vitals", str(path), *options],
        env={
            **os.environ,
            "GGML_NO_BACKTRACE": "1",
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    return child.stdout


def test_tier_1_is_covered() -> None:
    """Every architecture of Tier 1 has a recipe."""
    assert set(_TIER_1) <= set(RECIPES)


@parametrize_all
def test_logits_are_finite_and_of_a_sane_size(name: str, folder: Path) -> None:
    """All logits are finite, and their spread is neither flat nor explosive."""
    vitals = _vitals(name, folder)
    assert vitals["finite"]
    assert 0.5 < vitals["std"][0] <= vitals["std"][1] < 20


@parametrize_all
def test_greedy_tokens_vary_and_are_clear(name: str, folder: Path) -> None:
    """Eight greedy steps give several tokens, and the first token is never tied with the second."""
    vitals = _vitals(name, folder)
    assert len(set(vitals["tokens"])) >= 4
    assert vitals["margin"] > 0.02


@parametrize_all
def test_runs_are_deterministic(name: str, folder: Path) -> None:
    """Repeats and one to four threads give the same logits, bit for bit."""
    vitals = _vitals(name, folder)
    assert vitals["repeats"]
    assert vitals["threads"] == (name not in _DEPENDS_ON_THREADS)


@parametrize_all
def test_every_layer_matters(name: str, folder: Path) -> None:
    """Changing any one layer's weights by a twentieth changes the logits."""
    layers = _vitals(name, folder)["layers"]
    assert len(layers) == _LOOPED.get(name, _ALL[name].n_layer)
    assert {layer: change for layer, change in layers.items() if change < _SEEN} == {}


@parametrize_all
def test_every_state_matters(name: str, folder: Path) -> None:
    """Zeroing any one tensor of the cache changes the next token's logits, and a restored state continues exactly."""
    vitals = _vitals(name, folder)
    assert vitals["caches"]
    assert {cache: change for cache, change in vitals["caches"].items() if change < _SEEN} == {}
    assert vitals["restored"]


@parametrize_all
def test_pattern_is_what_the_graph_says(name: str, folder: Path) -> None:
    """The layers with attention and recurrent state in the recipe are those whose caches the graph reads."""
    recipe, caches = _ALL[name], _vitals(name, folder)["caches"]
    attention: set[int] = set()
    recurrent: set[int] = set()
    for cache_name in caches:
        layer = int(re.findall(r"(?:_l|-)(\d+)", cache_name)[0])
        recurrent_kind = cache_name.startswith(("cache_r", "cache_s", "cache_ple_r", "conv_states", "mamba_", "dsv4_"))
        (recurrent if recurrent_kind else attention).add(layer)
    shared = recipe.metadata.get("attention.shared_kv_layers", 5 if recipe.architecture == "gemma3n" else 0)
    own = recipe.n_layer - int(str(shared))
    kept = {layer for layer, letter in enumerate(recipe.pattern) if letter in "AB" and layer < own}
    assert attention == kept | _BEYOND.get(name, set())
    assert recurrent == {layer for layer, letter in enumerate(recipe.pattern) if letter in "RB"}


@parametrize_all
def test_first_token_and_positions_matter(name: str, folder: Path) -> None:
    """Another first token, and a position that is one too large, change the logits."""
    vitals = _vitals(name, folder)
    assert vitals["first_token"] > _SEEN
    assert vitals["position"] > _SEEN or not vitals["positional"]


@parametrize_all
def test_boundary_fits_the_wire(name: str, folder: Path) -> None:
    """What a layer hands to the next is far inside of float16's range, and is not nothing."""
    assert 0.1 < _vitals(name, folder)["boundary"] < 1000
