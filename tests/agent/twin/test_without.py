"""Every architecture of llama.cpp has a twin or a reason why not."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

import pytest

from agent.errors import NoRecipe, TwinBuildFailed
from agent.header import architectures as arch
from agent.twin.build import build_twin
from agent.twin.catalog import RECIPES, recipe_for
from agent.twin.recipe import Recipe
from agent.twin.without import UNBUILDABLE, WITHOUT_TWIN

pytest.importorskip("llama_cpp")

_END = "(unknown)"  # llama.cpp's name for what it does not know, the last one

_Asked = Callable[[str], bool]


def _library() -> Any:
    from agent.binding.load import load_binding

    return load_binding().llama._lib  # C++ functions, which no binding declares


@pytest.fixture(scope="module")
def names() -> dict[str, int]:
    """The architectures of the library under test, as it names them itself."""
    name_of = _library()._Z13llm_arch_name8llm_arch
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.c_int]
    found: dict[str, int] = {}
    while (name := name_of(len(found)).decode()) != _END:
        found[name] = len(found)
        assert len(found) < 1000
    return found


def _asked_of(function: str, names: dict[str, int]) -> set[str]:
    """The architectures of which a question of the library is true."""
    ask = getattr(_library(), function)
    ask.restype, ask.argtypes = ctypes.c_bool, [ctypes.POINTER(ctypes.c_int)]
    return {name for name, number in names.items() if ask(ctypes.byref(ctypes.c_int(number)))}


def _unaccounted(names: Iterable[str], *groups: Container[str]) -> list[str]:
    """The names that are not in exactly one of the groups."""
    return [name for name in names if sum(name in group for group in groups) != 1]


def test_every_architecture_of_the_library_has_a_twin_or_a_reason(names: dict[str, int]) -> None:
    """Exactly one of both, and there are no others."""
    assert len(names) > 150
    assert _unaccounted(names, RECIPES, WITHOUT_TWIN) == []
    assert {*RECIPES, *WITHOUT_TWIN} - set(names) == set()


def test_an_architecture_that_is_forgotten_is_noticed(names: dict[str, int]) -> None:
    """A pin with a new one, a recipe that was lost, and one that has both."""
    assert _unaccounted([*names, "llama9"], RECIPES, WITHOUT_TWIN) == ["llama9"]
    assert _unaccounted(names, RECIPES.keys() - {"grok"}, WITHOUT_TWIN) == ["grok"]
    assert _unaccounted(names, {*RECIPES, "bert"}, WITHOUT_TWIN) == ["bert"]


def test_the_classes_are_those_of_the_library(names: dict[str, int]) -> None:
    """Diffusion, recurrent and hybrid, asked of llama.cpp."""
    assert _asked_of("_Z21llm_arch_is_diffusionRK8llm_arch", names) == arch.DIFFUSION
    assert _asked_of("_Z21llm_arch_is_recurrentRK8llm_arch", names) == arch.RECURRENT
    assert _asked_of("_Z18llm_arch_is_hybridRK8llm_arch", names) == arch.HYBRID & set(names)


@pytest.mark.parametrize(
    ("architecture", "word"),
    [
        ("bert", "an encoder"),
        ("llama-embed", "an encoder"),
        ("t5encoder", "an encoder"),
        ("t5", "an encoder-decoder"),
        ("dream", "a diffusion language model"),
        ("eagle3", "a draft head"),
        ("qwen3tts", "an audio model"),
        ("clip", "a multimodal projector"),
        ("gptj", "unsupported model architecture"),
        ("plm", "GGML_ASSERT"),
    ],
)
def test_asking_for_such_a_twin_says_why_there_is_none(architecture: str, word: str) -> None:
    """Not a list of similar names: the reason."""
    with pytest.raises(NoRecipe, match=f"no twin .*{architecture}.*{word}"):
        recipe_for(architecture)


def _last_words(recipe: Recipe, folder: Path) -> str:
    """What llama.cpp says when the twin is built, loaded and run; nothing where it runs."""
    try:
        path = build_twin(recipe, folder)
    except TwinBuildFailed as error:
        return str(error)
    child = subprocess.run(
        [sys.executable, "-m", "agent.twin.vitals", str(path)],
        env={
            **os.environ,
            "GGML_NO_BACKTRACE": "1",
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return child.stderr if child.returncode else ""


@pytest.mark.parametrize("architecture", UNBUILDABLE)
def test_llama_cpp_still_refuses_what_is_called_unbuildable(architecture: str, tmp_path: Path) -> None:
    """In the same words: a pin that runs it, or that fails elsewhere, is noticed."""
    entry = UNBUILDABLE[architecture]
    assert entry.words in _last_words(entry.attempt, tmp_path)
    assert entry.words in WITHOUT_TWIN[architecture]


def test_an_architecture_that_runs_has_no_last_words(tmp_path: Path) -> None:
    """So the test above fails for what is called unbuildable and is not."""
    assert _last_words(RECIPES["qwen3"], tmp_path) == ""
