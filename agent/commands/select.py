"""The plan of a local run: the same one that matrixgen would make, for the device at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.runner.probe import probe
from matrixgen.leg import Plan
from matrixgen.manifest import Manifest, load_manifest
from matrixgen.plan import build_plan


def plan_here(
    manifests: Path | None,
    *,
    families: Sequence[str],
    tiers: Sequence[int],
    event: str,
    subject: str | None,
    device: str | None,
) -> tuple[Manifest, Plan]:
    """Plan `event` for the chosen families on one backend: that of `device`, or of the best device present."""
    manifest = load_manifest(manifests)
    for name in families:
        if not any(character in name for character in "*?["):
            manifest.family(name)
    plan = build_plan(
        manifest, event=event, tiers=tiers, families=families, backends=(probe().backend_of(device),), subject=subject
    )
    return manifest, plan
