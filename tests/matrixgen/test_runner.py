"""Runner classes: the smallest that holds a leg, and by how much it fails otherwise."""

from __future__ import annotations

import pytest

from matrixgen.errors import NoRunnerFits
from matrixgen.manifest import Manifest
from matrixgen.runner import GIB, RunnerClass, builder, choose, needs_of


def named(manifest: Manifest, size: int, backend: str, *, trusted: bool = True) -> str:
    """Name of the class chosen for weights of `size` bytes."""
    return choose(manifest.runners, leg="x@y", backend=backend, needs=needs_of(size, backend), trusted=trusted).name


@pytest.mark.parametrize(
    ("gib", "backend", "expected"),
    [
        (0, "cpu", "hosted-linux-cpu"),
        (7.9, "cpu", "hosted-linux-cpu"),
        (8.1, "cpu", "lab-linux-cpu"),
        (14, "cuda", "lab-linux-cuda-24"),
        (15, "cuda", "lab-linux-cuda-80"),
        (80, "metal", "lab-macos-metal-128"),
        (100, "metal", "lab-macos-metal-256"),
    ],
)
def test_smallest_class_that_fits(fixed: Manifest, gib: float, backend: str, expected: str) -> None:
    """Hosted before self-hosted, small before large."""
    assert named(fixed, int(gib * GIB), backend) == expected


def test_what_fits_nowhere_says_by_how_much(fixed: Manifest) -> None:
    """The error names leg, nearest class and the missing GiB."""
    with pytest.raises(NoRunnerFits, match=r"x@y.*lab-linux-cuda-80.*lacks [0-9.]+ GiB of VRAM"):
        named(fixed, 70 * GIB, "cuda")


def test_a_shortfall_of_bytes_is_still_a_shortfall(fixed: Manifest) -> None:
    """What lacks a few bytes is told as a tenth of a GiB and never as nothing."""
    with pytest.raises(NoRunnerFits, match=r"lacks 0\.1 GiB of VRAM"):
        named(fixed, int(59.2 * GIB) + 1000, "cuda")


def test_untrusted_legs_stay_hosted(fixed: Manifest) -> None:
    """Without trust a self-hosted class does not exist."""
    assert named(fixed, 0, "cpu", trusted=False) == "hosted-linux-cpu"
    with pytest.raises(NoRunnerFits, match="untrusted"):
        named(fixed, 0, "cuda", trusted=False)
    with pytest.raises(NoRunnerFits, match="lacks"):
        named(fixed, 20 * GIB, "cpu", trusted=False)


def test_order_of_classes_does_not_matter(fixed: Manifest) -> None:
    """The choice depends on the classes, not on their order."""
    reverse = fixed._replace(runners=tuple(reversed(fixed.runners)))
    for gib in (0, 5, 10, 20):
        assert named(fixed, gib * GIB, "cpu") == named(reverse, gib * GIB, "cpu")


def test_builder_is_the_smallest_of_its_kind(fixed: Manifest) -> None:
    """A build for the lab's CPU machine happens on the hosted one."""
    lab = next(runner for runner in fixed.runners if runner.name == "lab-linux-cpu")
    assert builder(fixed.runners, lab).name == "hosted-linux-cpu"
    metal = next(runner for runner in fixed.runners if runner.name == "lab-macos-metal-256")
    assert builder(fixed.runners, metal).name == "lab-macos-metal-128"


def test_accelerators_need_their_own_memory() -> None:
    """Weights count against VRAM on an accelerator only."""
    assert needs_of(GIB, "cpu").vram_gb == 0
    assert needs_of(GIB, "cuda").vram_gb > 1


def test_shortfall_lists_each_resource() -> None:
    """Memory, VRAM and disk are each named."""
    tiny = RunnerClass(
        name="tiny", labels=("x",), os="linux", arch="x64", backend="cuda", self_hosted=True,
        memory_gb=1, vram_gb=1, disk_gb=1, legs_at_a_time=1, notes="",
    )  # fmt: skip
    assert set(needs_of(10 * GIB, "cuda").shortfall(tiny)) == {"memory", "VRAM", "disk"}
