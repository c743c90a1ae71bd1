"""The recipes, one module a group."""

from __future__ import annotations

from collections.abc import Mapping

from agent.twin.recipe import Recipe
from agent.twin.recipes import dense, hybrid, mla, moe, multimodal, recurrent

GROUPS: tuple[tuple[Recipe, ...], ...] = (
    dense.RECIPES,
    moe.RECIPES,
    mla.RECIPES,
    recurrent.RECIPES,
    hybrid.RECIPES,
    multimodal.RECIPES,
)
FAMILY_GROUPS: tuple[Mapping[str, Recipe], ...] = (mla.FAMILY_RECIPES,)
