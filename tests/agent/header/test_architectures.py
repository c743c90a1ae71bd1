"""The classes of architectures against the llama.cpp sources: a pin with a new architecture is noticed here."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from agent.header import architectures as arch

LLAMA_SOURCES = "SKIPPY_LLAMA_SRC"


@pytest.fixture(scope="module")
def source() -> str:
    """llama-arch.cpp of the pin."""
    folder = os.environ.get(LLAMA_SOURCES)
    if not folder:
        pytest.skip(f"{LLAMA_SOURCES} does not name a llama.cpp source tree")
    return (Path(folder) / "src" / "llama-arch.cpp").read_text(encoding="utf-8")


def _names(source: str) -> dict[str, str]:
    return dict(re.findall(r'\{ (LLM_ARCH_\w+), +"([\w.-]+)" +\}', source))


def _listed(source: str, function: str) -> set[str]:
    body = source.partition(f"bool {function}(")[2].partition("return true;")[0]
    return {_names(source)[constant] for constant in re.findall(r"case (LLM_ARCH_\w+):", body)}


def test_every_architecture_of_the_pin_is_classified(source: str) -> None:
    """Nothing that llama.cpp can load is unknown to us by oversight."""
    names = set(_names(source).values())
    assert len(names) > 100
    assert names - arch.KNOWN - {"clip"} == set()
    assert arch.KNOWN - names == {"inkling"}


def test_the_recurrent_ones_are_those_of_llama_cpp(source: str) -> None:
    """llm_arch_is_recurrent and ours are the same set."""
    assert _listed(source, "llm_arch_is_recurrent") == arch.RECURRENT


def test_the_hybrid_ones_are_those_of_llama_cpp(source: str) -> None:
    """llm_arch_is_hybrid and ours are the same, but for one of the patch queue."""
    assert _listed(source, "llm_arch_is_hybrid") == arch.HYBRID - {"inkling"}


def test_the_diffusion_ones_are_those_of_llama_cpp(source: str) -> None:
    """llm_arch_is_diffusion and ours are the same set."""
    assert _listed(source, "llm_arch_is_diffusion") == arch.DIFFUSION


def test_every_rule_that_reads_a_layer_list_is_known(source: str) -> None:
    """The models that read attention.recurrent_layers are those for which we do."""
    models = (Path(os.environ[LLAMA_SOURCES]) / "src" / "models").glob("*.cpp")
    reading = {path.stem for path in models if "LLM_KV_ATTENTION_RECURRENT_LAYERS" in path.read_text(encoding="utf-8")}
    assert reading == set(arch.BY_INTERVAL)
