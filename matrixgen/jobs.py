"""Jobs: which legs share a machine. One leg is one job, unless small legs are packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from matrixgen import limits
from matrixgen.canonical import sha256_hex

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from matrixgen.leg import Leg

SHARED_CACHE = "actions-cache"  # one job restores one cache, so a leg with its own is never packed


class Job(NamedTuple):
    """One cell of a matrix. All its legs have the same runner class, build, subject and cache store."""

    id: str
    name: str
    legs: tuple[Leg, ...]
    timeout_minutes: int

    @property
    def seconds(self) -> int:
        """Estimated work."""
        return sum(leg.estimate.seconds for leg in self.legs)


def jobs_of(legs: Sequence[Leg], *, pack_minutes: int = 0, kept: Container[str] | None = None) -> list[Job]:
    """The jobs of `legs`, in the order of family and backend of the first leg; with `kept`, only of the legs with these ids.

    Legs that take at most half of `pack_minutes` are packed into jobs that take at most `pack_minutes`, and all about the same
    time: the longest leg goes first, always to the job with the least work (longest processing time first).
    """
    chosen = [leg for leg in legs if kept is None or leg.id in kept]
    groups: dict[tuple[str, ...], list[Leg]] = {}
    jobs = []
    for leg in chosen:
        if leg.estimate.seconds * 2 <= pack_minutes * 60 and leg.cache.store != SHARED_CACHE:
            groups.setdefault((leg.runner, leg.build_key, leg.subject, leg.cache.store), []).append(leg)
        else:
            jobs.append(_job((leg,)))
    for group in groups.values():
        jobs += [_job(tuple(sorted(bin_, key=lambda leg: leg.id))) for bin_ in _balanced(group, pack_minutes * 60)]
    return sorted(jobs, key=lambda job: (job.legs[0].family.family, job.legs[0].backend))


def chunks_of(jobs: Sequence[Job]) -> list[tuple[str, Sequence[Job]]]:
    """(name, jobs) of each part that one matrix holds; `chunk-001` is always the first 256."""
    size = limits.MAX_MATRIX_LEGS
    return [(f"chunk-{start // size + 1:03}", jobs[start : start + size]) for start in range(0, len(jobs), size)]


def _balanced(legs: Sequence[Leg], most: int) -> list[list[Leg]]:
    """As few bins of at most `most` seconds as longest-first finds; no leg takes more than half of `most`."""
    import heapq

    ordered = sorted(legs, key=lambda leg: (-leg.estimate.seconds, leg.id))
    count = -(-sum(leg.estimate.seconds for leg in legs) // most)
    while True:
        bins: list[tuple[int, int, list[Leg]]] = [(0, number, []) for number in range(count)]
        for leg in ordered:
            seconds, number, members = bins[0]
            members.append(leg)
            heapq.heapreplace(bins, (seconds + leg.estimate.seconds, number, members))
        if max(seconds for seconds, _, _ in bins) <= most:
            return [members for _, _, members in bins]
        count += -(-count // 10)


def _job(legs: tuple[Leg, ...]) -> Job:
    first = legs[0]
    if len(legs) == 1:
        return Job(first.id, f"{first.family.family} ({first.backend})", legs, first.timeout_minutes)
    ids = "\n".join(leg.id for leg in legs)
    hosted = "self-hosted" not in first.runs_on
    return Job(
        id=f"pack-{sha256_hex(ids)[:12]}@{first.backend}",
        name=f"{first.family.family} to {legs[-1].family.family}, {len(legs)} families ({first.backend})",
        legs=legs,
        timeout_minutes=limits.cap_minutes(sum(leg.timeout_minutes for leg in legs), self_hosted=not hosted),
    )
