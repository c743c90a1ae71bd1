"""Why llama.cpp may refuse a file whose header is sound: decided here, from the bytes, not from the loader's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.header.architectures import KNOWN
from agent.header.ggml_types import BLOCK

if TYPE_CHECKING:
    from agent.header.model import Header


def unknown_types(header: Header) -> tuple[int, ...]:
    """Numbers of the tensor types in the file that this project does not know, and an older llama.cpp may not either."""
    return tuple(sorted({tensor.type for tensor in header.tensors} - BLOCK.keys()))


def why_refused(header: Header) -> str:
    """What a refusal of the loader means, for its error: `pin_lacks_type`, `pin_lacks_architecture` or `loader_incompatible`.

    The header was read in bounds before this is asked, so the file is not cut short, whatever the loader calls it.
    """
    types = unknown_types(header)
    if types:
        numbers = ", ".join(map(str, types))
        return (
            f"pin_lacks_type: tensors are of type {numbers}, which this project does not know: if llama.cpp names the type, the "
            "pin is older than the file, so move the pin"
        )
    if header.architecture not in KNOWN:
        return (
            f"pin_lacks_architecture: {header.architecture} is not among the architectures that this project knows: the pin may "
            "be older than the file"
        )
    return (
        "loader_incompatible: every count, length and offset of the header was checked and fits the file, so it is not cut "
        "short: compare its sha256 with the manifest, then look at what this llama.cpp expects of the architecture"
    )
