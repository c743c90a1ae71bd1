"""Where the model files of a leg are kept between jobs, and why there.

GitHub evicts the caches of a repository above 10 GB, oldest first: a large set pushes out all others and is pushed out itself. So
only sets up to a size go there. Each row is decided by its own size and nothing else, so that moving one family never moves the
files of another; whether all of them together fit the budget is a rule of the manifest (MG035).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrixgen.family import Family
    from matrixgen.runner import RunnerClass

GB = 10**9
QUOTA_GB = 10


class Caches(NamedTuple):
    """caches.json: the first word of every key, and GB (10^9 bytes) for one set of files and for all of a repository."""

    prefix: str
    largest_set_gb: float
    budget_gb: float


class CacheChoice(NamedTuple):
    """`store` is actions-cache, runner-local, s3 or none."""

    store: str
    reason: str


NO_WEIGHTS = CacheChoice("none", "a twin is made on the machine, nothing is fetched")


def choose_cache(caches: Caches, size: int, runner: RunnerClass) -> CacheChoice:
    """Where a leg with `size` bytes of files keeps them. A self-hosted machine has its own store, whatever the size."""
    if not size:
        return NO_WEIGHTS
    if runner.self_hosted:
        return CacheChoice("runner-local", f"{runner.name} is self-hosted and keeps its store between jobs")
    if size <= caches.largest_set_gb * GB:
        return CacheChoice("actions-cache", f"{size / GB:.2f} GB, and sets up to {caches.largest_set_gb:g} GB go there")
    return CacheChoice(
        "s3", f"{size / GB:.2f} GB is more than the {caches.largest_set_gb:g} GB that go to GitHub's caches"
    )


def cached_bytes(caches: Caches, families: Iterable[Family], systems: int) -> int:
    """Bytes that all rows of tier 1 and 2 would keep in GitHub's caches, once for each of `systems` hosted systems."""
    sizes = [family.weight_size for family in families if family.tier in (1, 2) and family.unpinned is None]
    return systems * sum(size for size in sizes if size <= caches.largest_set_gb * GB)
