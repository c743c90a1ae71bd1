"""Where the model files of a leg are kept between jobs, and why there.

GitHub evicts the caches of a repository above 10 GB, oldest first, so a set that does not fit pushes out all others and is
pushed out itself. The decision is made over all rows of the manifest and not over the legs of one plan: otherwise each event
would find room for other rows, and together they would not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrixgen.family import Family
    from matrixgen.runner import RunnerClass

GB = 10**9
QUOTA_GB = 10


class Caches(NamedTuple):
    """caches.json. `budget_gb` is what model files may take of the 10 GB (10^9 bytes each) of a repository."""

    prefix: str
    budget_gb: float


class CacheChoice(NamedTuple):
    """`store` is actions-cache, runner-local, s3 or none."""

    store: str
    reason: str


NO_WEIGHTS = CacheChoice("none", "a twin is made on the machine, nothing is fetched")


def hosted_choices(caches: Caches, families: Sequence[Family]) -> dict[str, CacheChoice]:
    """The choice on hosted machines for every row that can have weights, by family.

    Rows take their place in the budget by tier, then by size: a certified family never loses it to one that is in no tier.
    """
    rows = [family for family in families if not family.dropped and family.unpinned is None]
    sizes = {family.family: sum(file.size or 0 for file in family.weight_files) for family in rows}
    rows.sort(key=lambda family: (family.tier or 9, sizes[family.family], family.family))
    taken = 0
    choices = {}
    for family in rows:
        size = sizes[family.family]
        budget = caches.budget_gb * GB
        if taken + size <= budget:
            taken += size
            said = f"{size / GB:.1f} GB; with all before it {taken / GB:.1f} of {caches.budget_gb:g} GB"
            choices[family.family] = CacheChoice("actions-cache", said)
        elif size > budget:
            said = f"{size / GB:.1f} GB is more than the {caches.budget_gb:g} GB that models may take of GitHub's caches"
            choices[family.family] = CacheChoice("s3", said)
        else:
            said = f"{size / GB:.1f} GB on top of {taken / GB:.1f} GB is more than the budget of {caches.budget_gb:g} GB"
            choices[family.family] = CacheChoice("s3", said)
    return choices


def choose_cache(hosted: Mapping[str, CacheChoice], family: str, runner: RunnerClass, *, weights: bool) -> CacheChoice:
    """The choice of one leg. A self-hosted machine keeps its own store, whatever the size."""
    if not weights:
        return NO_WEIGHTS
    if runner.self_hosted:
        return CacheChoice("runner-local", f"{runner.name} is self-hosted and keeps its store between jobs")
    return hosted[family]
