"""The recipes, one module a group."""

from __future__ import annotations

from collections.abc import Mapping

from agent.twin.recipe import Recipe
from agent.twin.recipes import (
    dense,
    hybrid,
    looped,
    mla,
    moe,
    moe_mixed,
    multimodal,
    older,
    recurrent,
    streams,
    windowed,
)

GROUPS: tuple[tuple[Recipe, ...], ...] = (
    dense.RECIPES,
    older.RECIPES,
    windowed.RECIPES,
    looped.RECIPES,
    moe.RECIPES,
    moe_mixed.RECIPES,
    mla.RECIPES,
    recurrent.RECIPES,
    hybrid.RECIPES,
    streams.RECIPES,
    multimodal.RECIPES,
)
FAMILY_GROUPS: tuple[Mapping[str, Recipe], ...] = (mla.FAMILY_RECIPES,)
