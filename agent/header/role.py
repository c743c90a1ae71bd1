"""What a GGUF is for: only some are models that can be split."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from agent.errors import WrongRole
from agent.header import architectures as arch
from agent.header.text import printable
from agent.header.verdicts import NEXT_STEP, Verdict

if TYPE_CHECKING:
    from agent.header.model import Header


class Role(StrEnum):
    """The kinds of GGUF files."""

    CAUSAL = "causal"
    PROJECTOR = "projector"
    VOCAB_ONLY = "vocab-only"
    ENCODER = "encoder"
    ENCODER_DECODER = "encoder-decoder"
    ADAPTER = "adapter"
    DIFFUSION = "diffusion"
    DRAFT = "draft"
    AUDIO = "audio"
    IMATRIX = "imatrix"

    @property
    def meaning(self) -> str:
        """What such a file is, as in "this is ..."."""
        return _MEANING[self]


_MEANING = {
    Role.CAUSAL: "a causal language model",
    Role.PROJECTOR: "a multimodal projector (mmproj), which needs its language model beside it",
    Role.VOCAB_ONLY: "a vocabulary: it holds no tensors",
    Role.ENCODER: "an encoder: it embeds text and generates none",
    Role.ENCODER_DECODER: "an encoder-decoder model, whose two halves cannot be cut as one chain",
    Role.ADAPTER: "a LoRA adapter, which needs its base model",
    Role.DIFFUSION: "a diffusion language model, which has no cache to split",
    Role.DRAFT: "a draft head, which works only beside its target model",
    Role.AUDIO: "an audio model",
    Role.IMATRIX: "an importance matrix, which is data for quantisation",
}
_BY_TYPE = {"adapter": Role.ADAPTER, "imatrix": Role.IMATRIX, "mmproj": Role.PROJECTOR, "projector": Role.PROJECTOR}
_CARRIERS = {"clip": Role.PROJECTOR, "imatrix": Role.IMATRIX}
_BY_ARCHITECTURE = {
    Role.ENCODER_DECODER: arch.ENCODER_DECODER,
    Role.ENCODER: arch.ENCODER,
    Role.DIFFUSION: arch.DIFFUSION,
    Role.DRAFT: arch.DRAFT,
    Role.AUDIO: arch.AUDIO,
}
ROLES: Mapping[str, Role] = MappingProxyType(
    {**_CARRIERS, **{name: role for role, names in _BY_ARCHITECTURE.items() for name in names}}
)
"""The architectures whose name says that they are no causal models."""
_PROJECTOR_TYPES = ("clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type")


def role_of(header: Header) -> Role:
    """Return what the file is for, by its declared type, its architecture and whether it holds tensors."""
    declared = header.metadata.get("general.type")
    if isinstance(declared, str) and declared in _BY_TYPE:
        return _BY_TYPE[declared]
    if header.architecture in _CARRIERS:
        return _CARRIERS[header.architecture]
    if not header.tensors:
        return Role.VOCAB_ONLY
    if header.architecture in ROLES:
        return ROLES[header.architecture]
    if header.metadata.get(header.key("attention.causal")) is False:
        return Role.ENCODER
    return Role.CAUSAL


def require_causal(header: Header) -> None:
    """Check that the file is a causal model with a usable number of layers.

    Raises:
        WrongRole: it is something else.
        HeaderInvalid: `missing_key` or `bad_block_count`.
    """
    role = role_of(header)
    if role is not Role.CAUSAL:
        _refuse(header, f"a causal language model is needed, but this is {role.meaning}")
    _ = header.trunk_layers


def require_projector(header: Header) -> None:
    """Check that the file is a multimodal projector that names its type.

    Raises:
        WrongRole: it is something else, or its projector type is missing or empty.
    """
    role = role_of(header)
    if role is not Role.PROJECTOR:
        _refuse(header, f"a multimodal projector (mmproj) is needed, but this is {role.meaning}")
    kinds = [header.metadata[key] for key in _PROJECTOR_TYPES if key in header.metadata]
    if not kinds or not all(isinstance(kind, str) and kind for kind in kinds):
        _refuse(header, f"the projector names no type ({', '.join(_PROJECTOR_TYPES)} is missing or empty)")


def _refuse(header: Header, detail: str) -> NoReturn:
    raise WrongRole(printable(str(header.path)), Verdict.WRONG_ROLE, detail, NEXT_STEP[Verdict.WRONG_ROLE])
