"""What a file is for decides whether it can be certified."""

from __future__ import annotations

import re

import pytest

from agent.errors import HeaderInvalid, WrongRole
from agent.header.role import ROLES, Role, require_causal, require_projector, role_of
from tests.agent.header.kit import architecture, gguf, key, number, read, string, tensor, u32


def _file(name: str, *keys: bytes, tensors: bool = True) -> bytes:
    entries = [architecture(name), key(f"{name}.block_count", u32(2)), *keys]
    return gguf(entries, [tensor("output.weight")] if tensors else [], data=128 if tensors else 0)


def _kind(value: str) -> bytes:
    return key("general.type", string(value))


CASES = [
    pytest.param(_file("qwen3"), Role.CAUSAL, id="model"),
    pytest.param(_file("qwen3", _kind("model")), Role.CAUSAL, id="model-declared"),
    pytest.param(_file("clip"), Role.PROJECTOR, id="D22-architecture-clip"),
    pytest.param(_file("qwen2vl", _kind("mmproj")), Role.PROJECTOR, id="D22-type-mmproj"),
    pytest.param(_file("llama", _kind("adapter")), Role.ADAPTER, id="adapter"),
    pytest.param(_file("llama", _kind("imatrix")), Role.IMATRIX, id="imatrix"),
    pytest.param(_file("llama", tensors=False), Role.VOCAB_ONLY, id="vocabulary"),
    pytest.param(_file("bert", tensors=False), Role.VOCAB_ONLY, id="vocabulary-of-an-encoder"),
    pytest.param(_file("bert"), Role.ENCODER, id="bert"),
    pytest.param(_file("t5encoder"), Role.ENCODER, id="t5encoder"),
    pytest.param(_file("qwen3", key("qwen3.attention.causal", number("bool", 0))), Role.ENCODER, id="not-causal"),
    pytest.param(_file("qwen3", key("qwen3.attention.causal", number("bool", 1))), Role.CAUSAL, id="causal"),
    pytest.param(_file("t5"), Role.ENCODER_DECODER, id="t5"),
    pytest.param(_file("dream"), Role.DIFFUSION, id="dream"),
    pytest.param(_file("eagle3"), Role.DRAFT, id="eagle3"),
    pytest.param(_file("wavtokenizer-dec"), Role.AUDIO, id="wavtokenizer"),
    pytest.param(_file("newarch"), Role.CAUSAL, id="unknown-architecture"),
]


@pytest.mark.parametrize(("data", "role"), CASES)
def test_the_role_is_known(data: bytes, role: Role) -> None:
    """Type, architecture, tensors and causality decide, in this order; only a causal model is accepted as one."""
    header = read(data)
    assert role_of(header) is role
    if role is Role.CAUSAL:
        require_causal(header)
        return
    with pytest.raises(WrongRole, match="a causal language model is needed") as caught:
        require_causal(header)
    assert caught.value.verdict == "wrong_role"


@pytest.mark.parametrize("name", sorted(ROLES))
def test_every_architecture_of_another_role_is_refused_with_a_word(name: str) -> None:
    """Encoders, T5, diffusion models, draft heads, audio models and projectors are no causal models, and the error says what."""
    with pytest.raises(WrongRole, match=re.escape(ROLES[name].meaning)):
        require_causal(read(_file(name)))


def test_a_model_without_layers_is_refused() -> None:
    """D7: a causal model must say how many layers it has."""
    with pytest.raises(HeaderInvalid) as caught:
        require_causal(read(gguf([architecture("qwen3")], [tensor("output.weight")], data=128)))
    assert caught.value.verdict == "missing_key"


@pytest.mark.parametrize("which", ["clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type"])
def test_a_projector_with_its_type_is_accepted(which: str) -> None:
    """All places where llama.cpp looks for the type count."""
    require_projector(read(_file("clip", key(which, string("qwen3vl_merger")))))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_file("qwen3vl"), id="D22-text-model"),
        pytest.param(_file("clip"), id="D22-no-type"),
        pytest.param(_file("clip", key("clip.projector_type", string(""))), id="D22-empty-type"),
        pytest.param(_file("clip", key("clip.projector_type", u32(1))), id="D22-type-is-a-number"),
    ],
)
def test_what_is_no_projector_is_refused(data: bytes) -> None:
    """A language model, or a projector without a type, is not taken for one."""
    with pytest.raises(WrongRole):
        require_projector(read(data))
