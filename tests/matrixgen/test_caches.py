"""Where model files are kept: a reason for each leg, a total that fits, and no row that moves another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.caches import GB, Caches, cached_bytes, choose_cache
from matrixgen.manifest import Manifest, check_manifest
from matrixgen.plan import build_plan

Edit = Callable[[str, Callable[[Any], Any]], Path]
CACHES = Caches(prefix="x", largest_set_gb=1, budget_gb=8)


@pytest.mark.parametrize(
    ("size", "runner", "store"),
    [
        (0, "hosted-linux-cpu", "none"),
        (1, "hosted-linux-cpu", "actions-cache"),
        (GB, "hosted-linux-cpu", "actions-cache"),
        (GB + 1, "hosted-linux-cpu", "s3"),
        (1, "lab-linux-cpu", "runner-local"),
        (100 * GB, "lab-linux-cpu", "runner-local"),
        (0, "lab-linux-cpu", "none"),
    ],
)
def test_the_choice(fixed: Manifest, size: int, runner: str, store: str) -> None:
    """By size and machine, at the limit too, always with a reason."""
    (machine,) = (entry for entry in fixed.runners if entry.name == runner)
    choice = choose_cache(CACHES, size, machine)
    assert choice.store == store
    assert choice.reason


def test_large_rows_never_go_to_github(live: Manifest) -> None:
    """A24, F1: rows above the limit have another store; a key does not mean a cache of GitHub."""
    plan = build_plan(live, event="release")
    for leg in plan.legs:
        assert (leg.cache.store == "none") == (leg.size == 0)
        if leg.size > live.caches.largest_set_gb * GB:
            assert leg.cache.store in ("runner-local", "s3")
    assert {leg.cache.store for leg in plan.legs} == {"none", "actions-cache", "runner-local", "s3"}


def test_the_shipped_budget_holds(live: Manifest) -> None:
    """What the shipped tiers keep fits their budget."""
    assert 0 < cached_bytes(live.caches, live.families, 1) <= live.caches.budget_gb * GB


@pytest.mark.parametrize(("largest", "budget", "severity"), [(1, 0.5, "warning"), (1, 8, None), (10, 8, "error")])
def test_too_much_for_the_quota(edit: Edit, largest: float, budget: float, severity: str | None) -> None:
    """MG035: above the budget a warning, above what GitHub keeps an error."""

    def many_rows(data: Any) -> None:
        base = next(row for row in data["families"] if row["family"] == "qwen3-dense")
        data["families"] += [{**base, "family": f"copy-{n}"} for n in range(3)]
        big = next(row for row in data["families"] if row["family"] == "glm47-flash")
        for facts in big["artifact"]["files"].values():
            facts["size"] = 9_900_000_000

    edit("families", many_rows)
    root = edit("caches", lambda data: data.update(largest_set_gb=largest, actions_cache_budget_gb=budget))
    findings, manifest = check_manifest(root)
    assert [finding.severity for finding in findings if finding.id == "MG035"] == ([severity] if severity else [])
    assert (manifest is None) == (severity == "error")


def test_prefix_is_data(fixed: Manifest) -> None:
    """The first word of all keys comes from caches.json."""
    other = fixed._replace(caches=fixed.caches._replace(prefix="acme"))
    plan = build_plan(other, event="llama-bump", families=["mamba"])
    assert plan.legs[0].build_key.startswith("acme-")
    assert str(plan.legs[0].model_key).startswith("acme-linux-skippy-ci-mamba-models-")
