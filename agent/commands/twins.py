"""`skippy-agent twins`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from agent.commands.folders import twin_folder
from agent.reporters.summary import shorten_state
from agent.twin.build import build_twin
from agent.twin.catalog import RECIPES, recipe_for
from agent.twin.recipe import Recipe
from agent.twin.without import WITHOUT_TWIN

_Row = dict[str, str | int | None]


def run(architectures: Sequence[str], *, build: bool, as_json: bool) -> int:
    """List or build twins, and say which architectures have none; returns the exit code."""
    recipes = [recipe_for(name) for name in architectures] if architectures else list(RECIPES.values())
    rows = [_row(recipe, build=build) for recipe in recipes]
    without = {} if architectures else WITHOUT_TWIN
    if as_json:
        none = [{"architecture": name, "without_twin": reason} for name, reason in without.items()]
        sys.stdout.write(json.dumps([*rows, *none]) + "\n")
        return 0

    from rich.table import Table

    from agent.reporters.console import make_console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("architecture", "layers", "state", "path" if build else "pattern from"):
        table.add_column(column, overflow="fold")
    for row in rows:
        pattern = ",".join(str(row["pattern"]).replace("B", "b")).replace("b", "AR")
        last = str(row["path"] or row["source"])
        if architectures and not build:
            last += f"\n{row['notes']}"
        table.add_row(str(row["architecture"]), str(row["layers"]), shorten_state(pattern), last)
    for name, reason in without.items():
        table.add_row(name, "-", "-", f"no twin: {reason}")
    make_console().print(table)
    return 0


def _row(recipe: Recipe, *, build: bool) -> _Row:
    return {
        "architecture": recipe.architecture,
        "layers": recipe.n_layer,
        "pattern": recipe.pattern,
        "source": recipe.source,
        "notes": recipe.notes,
        "digest": recipe.digest,
        "path": str(build_twin(recipe, twin_folder())) if build else None,
    }
