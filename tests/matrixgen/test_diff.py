"""`diff`: differences in meaning, and only those that are there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixgen.diff import PlanDiff, diff_plans
from matrixgen.manifest import Manifest, load_manifest
from matrixgen.pin import Patch
from matrixgen.plan import build_plan
from matrixgen.report_diff import diff_markdown
from tests.matrixgen.kit import FIXED, many

Run = Callable[..., Any]
MANIFEST = load_manifest(FIXED)


def moved(name: str, tier: int | None) -> Manifest:
    """The fixed manifest with one family in another tier."""
    rows = tuple(f._replace(tier=tier) if f.family == name else f for f in MANIFEST.families)
    return MANIFEST._replace(families=rows)


def differences(after: Manifest, event: str = "release") -> PlanDiff:
    """From the fixed manifest to `after`."""
    plans = [build_plan(manifest, event=event, allow_empty=True) for manifest in (MANIFEST, after)]
    return diff_plans(*plans)


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from([family.family for family in MANIFEST.families]),
    tier=st.sampled_from([1, 2, 3, None]),
    event=st.sampled_from(sorted(MANIFEST.batteries.events)),
)
def test_a_move_touches_its_family_only(name: str, tier: int | None, event: str) -> None:
    """A one-line move changes legs of that family and of no other, whatever the event."""
    diff = differences(moved(name, tier), event)
    assert diff.families <= {name}
    if MANIFEST.family(name).tier == tier:
        assert diff.same


def test_the_same_plan_has_no_difference(live: Manifest) -> None:
    """Nothing is reported where nothing is."""
    plan = build_plan(live, event="release")
    assert diff_plans(plan, plan).same
    assert "No leg changes" in diff_markdown(diff_plans(plan, plan), event="release")


def test_a_move_to_tier_2() -> None:
    """The move, the lanes that go, the time-out, and the legs on other backends that are dropped."""
    diff = differences(moved("mamba", 2))
    assert [(m.family, m.before, m.after) for m in diff.moved] == [("mamba", 1, 2)]
    assert {leg.id for leg in diff.dropped} == {"mamba@cuda", "mamba@metal"}
    (found,) = diff.changed.values()
    assert any("lanes dropped: chain" in line for line in found)
    text = diff_markdown(diff, event="release")
    assert "| `mamba` | 1 | 2 |" in text
    assert "1 family moved" in text


def test_a_new_pin_changes_every_leg() -> None:
    """A patch edit changes all build keys and names the patch."""
    patches = (Patch("0001-first.patch", "c" * 64), MANIFEST.pin.patches[1])
    other = MANIFEST._replace(pin=MANIFEST.pin._replace(patches=patches))
    diff = differences(other)
    assert diff.pin == ("patch 0001-first.patch edited",)
    assert len(diff.changed) == len(build_plan(MANIFEST, event="release").legs)
    assert all("other binaries (build key)" in found for found in diff.changed.values())
    assert len(diff.new_builds) == len(diff.old_builds) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"commit": "f" * 40}, "commit: 030ebb558a5820b444a8f836ed5cdd46c9b4bd7a -> "),
        ({"patches": ()}, "patch 0001-first.patch dropped"),
        ({"cache_version": "v9"}, "cache_version: v1 -> v9"),
        ({"toolchain_epoch": "9"}, "toolchain_epoch: 1 -> 9"),
    ],
)
def test_every_part_of_the_pin_is_told(change: dict[str, Any], words: str) -> None:
    """Commit, patches, versions: each is a line."""
    diff = differences(MANIFEST._replace(pin=MANIFEST.pin._replace(**change)))
    assert any(line.startswith(words) for line in diff.pin)


def test_bytes_and_minutes_are_summed_by_runner() -> None:
    """A family that goes takes its bytes and minutes with it."""
    diff = differences(moved("qwen3vlmoe", 3))
    runner = "lab-linux-cpu"
    assert diff.before[runner].size - diff.after[runner].size > 19e9
    assert diff.before[runner].seconds > diff.after[runner].seconds
    assert f"| `{runner}` | {diff.before[runner].legs} -> {diff.after[runner].legs} |" in diff_markdown(diff, event="x")


def test_long_lists_are_folded_and_fit(fixed: Manifest) -> None:
    """18,000 new legs are a comment that GitHub still shows, with the cut told."""
    diff = diff_plans(many(fixed, 0), many(fixed, 300))
    text = diff_markdown(diff._replace(added=diff.added * 60), event="llama-bump")
    assert "<details>" in text
    assert len(text.encode()) <= 2**20
    assert "cut" in text


def test_the_command_takes_files_folders_and_revisions(run: Run, folder: Path, tmp_path: Path) -> None:
    """Each side is a plan file, a folder or a revision of the repository that holds the folder."""
    plan = tmp_path / "plan.json"
    assert run("plan", "--manifests", str(folder), "-o", str(plan)).code == 0
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    assert run("move", "mamba", "--tier", "2", "--manifests", str(folder)).code == 0
    for before in (str(plan), str(FIXED), "HEAD"):
        result = run("diff", before, "--check", "--manifests", str(folder))
        assert result.code == 1
        assert "| `mamba` | 1 | 2 |" in result.out
    assert run("diff", str(FIXED), str(plan), "--check").code == 0
    for wrong in ("no-such-revision", "-x", "", "\x1b[31m"):
        assert run("diff", "--manifests", str(folder), "--", wrong).code == 2
