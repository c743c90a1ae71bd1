"""All recipes, by architecture, and those of families whose geometry differs from their architecture's usual one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from agent.errors import NoRecipe
from agent.twin.recipe import Recipe
from agent.twin.recipes import FAMILY_GROUPS, GROUPS
from agent.twin.without import WITHOUT_TWIN


def _by_architecture() -> Mapping[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    for group in GROUPS:
        for recipe in group:
            if recipe.architecture in recipes:
                raise ValueError(f"two recipes for {recipe.architecture}")
            recipes[recipe.architecture] = recipe
    return MappingProxyType(dict(sorted(recipes.items())))


RECIPES: Mapping[str, Recipe] = _by_architecture()
FAMILY_RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {name: recipe for group in FAMILY_GROUPS for name, recipe in group.items()}
)


def recipe_for(architecture: str, *, family: str | None = None) -> Recipe:
    """The recipe of a family if it has one of its own, else that of its architecture.

    Raises:
        NoRecipe: none exists; the message says why there can be none, or names the nearest architectures.
    """
    own = FAMILY_RECIPES.get(family) if family is not None else None
    if own is not None and own.architecture == architecture:
        return own
    recipe = RECIPES.get(architecture)
    if recipe is None and architecture in WITHOUT_TWIN:
        raise NoRecipe(f"there is no twin of the architecture {architecture!r}: {WITHOUT_TWIN[architecture]}")
    if recipe is None:
        near = difflib.get_close_matches(architecture, RECIPES, n=3)
        hint = f"nearest: {', '.join(near)}" if near else f"there are recipes for: {', '.join(RECIPES)}"
        raise NoRecipe(
            f"no twin recipe for the architecture {architecture!r}; {hint}. docs/twins.md says how to add one"
        )
    return recipe
