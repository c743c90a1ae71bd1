"""`skippy-agent twins`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from agent.commands.folders import twin_folder
from agent.reporters.summary import shorten_state
from agent.twin.build import build_twin
from agent.twin.catalog import RECIPES, recipe_for


def run(architectures: Sequence[str], *, build: bool, as_json: bool) -> int:
    """List or build twins; returns the exit code."""
    recipes = [recipe_for(name) for name in architectures] if architectures else list(RECIPES.values())
    rows = []
    for recipe in recipes:
        path = build_twin(recipe, twin_folder()) if build else None
        rows.append(
            {
                "architecture": recipe.architecture,
                "layers": recipe.n_layer,
                "pattern": recipe.pattern,
                "source": recipe.source,
                "digest": recipe.digest,
                "path": str(path) if path else None,
            }
        )
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return 0

    from rich.table import Table

    from agent.reporters.console import make_console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("architecture", "layers", "state", "path" if build else "pattern from"):
        table.add_column(column, overflow="fold")
    for row in rows:
        pattern = ",".join(str(row["pattern"]).replace("B", "b")).replace("b", "AR")
        table.add_row(
            str(row["architecture"]), str(row["layers"]), shorten_state(pattern), str(row["path"] or row["source"])
        )
    make_console().print(table)
    return 0
