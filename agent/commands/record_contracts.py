"""`skippy-agent record-contracts`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent.commands.folders import twin_folder
from agent.contracts import Answer, RecordedContract, load_contracts, write_contracts
from agent.errors import NoRecipe
from agent.runner.examine import examine
from agent.twin.build import build_twin
from agent.twin.catalog import FAMILY_RECIPES, RECIPES, recipe_for
from matrixgen.manifest import load_manifest
from matrixgen.plan import select


def run(families: Sequence[str], tiers: Sequence[int], *, manifests: Path | None) -> int:
    """Record the contracts of the selected families' architectures; returns the exit code."""
    manifest = load_manifest(manifests)
    contracts = dict(load_contracts(manifest.root))
    for family in select(manifest.families, families):
        if family.arch is None or (not families and family.tier not in tiers):
            continue
        try:
            recipe = recipe_for(family.arch, family=family.family)
        except NoRecipe as error:
            sys.stderr.write(f"{family.family}: skipped: {error}\n")
            continue
        path = build_twin(recipe, twin_folder())
        found = examine(path, "cpu", answer=True)
        kept = _answers_of_today(family.arch, contracts.get(family.arch))
        answers = {**kept, recipe.name: Answer.from_json(found["answer"])}
        contracts[family.arch] = replace(RecordedContract.from_json(found["recorded"]), answers=answers)
        sys.stderr.write(f"{family.arch}: {' + '.join(contracts[family.arch].frontier)}\n")
    write_contracts(manifest.root, contracts)
    return 0


def _answers_of_today(architecture: str, before: RecordedContract | None) -> dict[str, Answer]:
    """The recorded answers of twins that there still are."""
    twins = {
        recipe.name for recipe in (*RECIPES.values(), *FAMILY_RECIPES.values()) if recipe.architecture == architecture
    }
    return {name: answer for name, answer in before.answers.items() if name in twins} if before else {}
