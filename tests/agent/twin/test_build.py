"""Building a twin: the same bytes every time, cached, safe to ask for at once, and a refusal is a named error."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from agent.errors import NoRecipe, TwinBuildFailed
from agent.twin.build import build_twin
from agent.twin.catalog import FAMILY_RECIPES, RECIPES, recipe_for
from agent.twin.recipe import Recipe

pytest.importorskip("llama_cpp")


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    """The file is a function of the recipe and the library alone."""
    one, two = build_twin(RECIPES["lfm2"], tmp_path / "one"), build_twin(RECIPES["lfm2"], tmp_path / "two")
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()


def test_second_call_takes_the_cached_file(tmp_path: Path) -> None:
    """A file that is there is not written again, and nothing else is left beside it but its lock."""
    path = build_twin(RECIPES["qwen3"], tmp_path)
    before = path.stat().st_mtime_ns
    assert build_twin(RECIPES["qwen3"], tmp_path) == path
    assert path.stat().st_mtime_ns == before
    assert {entry.suffix for entry in tmp_path.iterdir()} <= {".gguf", ".lock"}


def test_another_recipe_is_another_file(tmp_path: Path) -> None:
    """Whatever shapes the file is in its name; words are not."""
    recipe = RECIPES["qwen3"]
    path = build_twin(recipe, tmp_path)
    assert build_twin(replace(recipe, seed=recipe.seed + 1), tmp_path) != path
    assert build_twin(replace(recipe, notes="other words"), tmp_path) == path


def test_concurrent_builders_agree(tmp_path: Path) -> None:
    """Three processes that ask for the same twin at once get the same whole file."""
    with get_context("spawn").Pool(3) as pool:
        paths = pool.starmap(build_twin, [(RECIPES["mamba"], tmp_path)] * 3)
    assert len(set(paths)) == 1
    assert paths[0].read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"attention.head_count": 0}, "llama.cpp did not build"),
        ({"expert_used_count": 99}, "GGML_ASSERT"),
        ({"block_count": 100000}, "GGML_ASSERT"),
        ({"rope.scaling.type": "no such type"}, "GGML_ASSERT"),
    ],
)
def test_what_llama_cpp_refuses_is_an_error_with_its_words(
    tmp_path: Path, change: dict[str, int | str], reason: str
) -> None:
    """A refusal or an abort in native code becomes a named error, and leaves no file."""
    recipe = RECIPES["qwen3moe"]
    with pytest.raises(TwinBuildFailed, match=reason):
        build_twin(replace(recipe, metadata={**recipe.metadata, **change}), tmp_path)
    assert list(tmp_path.glob("*.gguf")) == []


def test_unknown_architecture_in_the_library(tmp_path: Path) -> None:
    """A recipe for an architecture that the library does not know is refused with its name."""
    recipe = Recipe(architecture="no-such-thing", n_layer=1, pattern="A", metadata={}, source="none")
    with pytest.raises(TwinBuildFailed, match="no-such-thing"):
        build_twin(recipe, tmp_path)


def test_no_recipe_names_the_nearest() -> None:
    """An unknown architecture is an error that names architectures that exist."""
    with pytest.raises(NoRecipe, match="qwen3moe"):
        recipe_for("qwen3mo")


def test_family_recipe_is_taken_only_for_its_architecture() -> None:
    """A family's own geometry is used where its architecture is the one asked for."""
    own = FAMILY_RECIPES["glm47-flash"]
    assert recipe_for("deepseek2", family="glm47-flash") is own
    assert recipe_for("deepseek2", family="another") is RECIPES["deepseek2"]
    assert recipe_for("qwen3", family="glm47-flash") is RECIPES["qwen3"]


def test_a_wrong_file_is_refused_by_the_vital_signs(tmp_path: Path) -> None:
    """The measuring child ends with a message and not with a traceback."""
    file = tmp_path / "not-a-model.gguf"
    file.write_bytes(b"GGUF" + bytes(60))
    child = subprocess.run(
        [sys.executable, "-m", "agent.twin.vitals", str(file)],
        env={"PYTHONPATH": ":".join(entry for entry in sys.path if entry), "GGML_NO_BACKTRACE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 1
    assert "does not load" in child.stderr
    assert "Traceback" not in child.stderr
