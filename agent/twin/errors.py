"""What can go wrong with a twin, each with the next step."""

from __future__ import annotations

from typing import ClassVar

from agent.errors import AgentError


class NoRecipe(AgentError):
    """No recipe exists for an architecture or family."""


class TwinBuildFailed(AgentError):
    """llama.cpp did not accept a recipe, or stopped while it was asked for the tensors. The message carries its words."""

    exit_code: ClassVar[int] = 1
