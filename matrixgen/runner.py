"""Runner classes, and which of them holds a leg."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from matrixgen.errors import NoRunnerFits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GIB = 2**30


class RunnerClass(NamedTuple):
    """Machines with the same labels. Memory, VRAM and disk in GiB; `vram_gb` is 0 for the cpu backend."""

    name: str
    labels: tuple[str, ...]
    os: str
    arch: str
    backend: str
    self_hosted: bool
    memory_gb: float
    vram_gb: float
    disk_gb: float
    legs_at_a_time: int
    notes: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunnerClass:
        """From one entry of runners.json that matches the schema."""
        return cls(**{**data, "labels": tuple(data["labels"])})


class Needs(NamedTuple):
    """What a leg needs, in GiB."""

    memory_gb: float
    vram_gb: float
    disk_gb: float

    def shortfall(self, runner: RunnerClass) -> dict[str, float]:
        """GiB that `runner` lacks, by resource; empty when the leg fits."""
        lacking = {
            "memory": self.memory_gb - runner.memory_gb,
            "VRAM": self.vram_gb - runner.vram_gb,
            "disk": self.disk_gb - runner.disk_gb,
        }
        return {name: gib for name, gib in lacking.items() if gib > 0}

    def lacking(self, runner: RunnerClass) -> str:
        """The shortfall in words, each part rounded up to a tenth: `0.1 GiB of VRAM`; empty when the leg fits."""
        return ", ".join(f"{ceil(gib * 10) / 10:.1f} GiB of {name}" for name, gib in self.shortfall(runner).items())


def needs_of(size: int, backend: str) -> Needs:
    """Needs of a leg whose weights have `size` bytes.

    The whole model and both sides of a split are open at once but share the mapped file, so the weights count once,
    plus a quarter for states and activations and 2 GiB for each of the three processes. On an accelerator the same
    amount must also fit in device memory. The disk holds the files, a tenth more for partial downloads, and 2 GiB.
    """
    gib = size / GIB
    working = gib * 1.25 + 6
    return Needs(memory_gb=working, vram_gb=0 if backend == "cpu" else working, disk_gb=gib * 1.1 + 2)


def choose(runners: Sequence[RunnerClass], *, leg: str, backend: str, needs: Needs, trusted: bool) -> RunnerClass:
    """The smallest class of `backend` that holds `needs`; hosted before self-hosted.

    An untrusted event (`trusted` False: code of a fork may run) only ever gets hosted classes.
    Raises NoRunnerFits, which says by how much the nearest class is too small.
    """
    offered = [r for r in runners if r.backend == backend and (trusted or not r.self_hosted)]
    if not offered:
        kind = "" if trusted else "hosted "
        raise NoRunnerFits(
            f"{leg}: no {kind}runner class of runners.json offers backend {backend!r}; "
            + ("add one" if trusted else "an untrusted event never reaches a self-hosted machine")
        )
    fitting = [r for r in offered if not needs.shortfall(r)]
    if fitting:
        return min(fitting, key=lambda r: (r.self_hosted, r.memory_gb, r.vram_gb, r.disk_gb, r.name))
    nearest = min(offered, key=lambda r: (sum(needs.shortfall(r).values()), r.name))
    raise NoRunnerFits(
        f"{leg}: fits no runner class; the nearest, {nearest.name}, lacks {needs.lacking(nearest)}. "
        "Add a larger class to runners.json or pin a smaller file"
    )


def builder(runners: Sequence[RunnerClass], target: RunnerClass) -> RunnerClass:
    """The smallest class that builds for `target`: same backend and system, hosted before self-hosted."""
    same = [r for r in runners if (r.backend, r.os, r.arch) == (target.backend, target.os, target.arch)]
    return min(same, key=lambda r: (r.self_hosted, r.memory_gb, r.name))
