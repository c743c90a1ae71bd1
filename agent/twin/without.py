"""Architectures of llama.cpp that have no twin, and why: other roles than a causal model's, and what llama.cpp does not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent.header.role import ROLES, Role
from agent.twin.recipe import Recipe
from agent.twin.recipes.common import attention_only, transformer


@dataclass(frozen=True, kw_only=True)
class Unbuildable:
    """A causal architecture that llama.cpp knows by name and does not run.

    Attributes:
        attempt: the recipe that would be its twin.
        when: where it ends.
        words: llama.cpp's own. A test holds that it still says them, so that a pin which runs the architecture is noticed.
    """

    attempt: Recipe
    when: str
    words: str

    @property
    def reason(self) -> str:
        """Why there is no twin, in one line."""
        return f"llama.cpp ends {self.when}: {self.words}"


_ALL = (
    Unbuildable(
        attempt=attention_only(
            "gptj",
            metadata=transformer(head_size=None, kv_heads=4, layer_norm=True, eps=1e-5, rope__dimension_count=8),
            source="published configuration of EleutherAI/gpt-j-6b: every layer alike, parts side by side",
        ),
        when="when it loads the file",
        words="unsupported model architecture: 'gptj'",
    ),
    Unbuildable(
        attempt=attention_only(
            "plm",
            metadata=transformer(
                head_size=24,
                kv_heads=4,
                rope_base=1e5,
                attention__kv_lora_rank=32,
                attention__value_length=16,
                rope__dimension_count=8,
            ),
            source="published configuration of PLM-Team/PLM-1.8B-Instruct: every layer alike, decompressed keys and values in "
            "the cache",
        ),
        when="when it builds the graph, whose values have two dimensions where its cache wants three",
        words="GGML_ASSERT(a->ne[0] == b->ne[0]) failed",
    ),
)

UNBUILDABLE: Mapping[str, Unbuildable] = MappingProxyType({entry.attempt.architecture: entry for entry in _ALL})

WITHOUT_TWIN: Mapping[str, str] = MappingProxyType(
    dict(
        sorted(
            [(name, f"it is {role.meaning}") for name, role in ROLES.items() if role is not Role.IMATRIX]
            + [(name, entry.reason) for name, entry in UNBUILDABLE.items()]
        )
    )
)
"""Why, by architecture."""
