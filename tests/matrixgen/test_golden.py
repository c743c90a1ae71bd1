"""Golden matrices and plans of a fixed manifest. `pytest --update-golden` writes them anew; review the diff."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matrixgen.manifest import Manifest
from matrixgen.matrix import build_matrix, leg_matrix
from matrixgen.plan import build_plan
from matrixgen.planfile import plan_text
from matrixgen.report import plan_table

GOLDEN = Path(__file__).parent / "golden"
CASES = [
    (event, int(tier))
    for event, tiers in json.loads((GOLDEN / "manifests" / "batteries.json").read_text(encoding="utf-8"))[
        "events"
    ].items()
    for tier in tiers
]


def compare(path: Path, text: str, update: bool) -> None:
    """Compare with the file, or write it."""
    if update:
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path.name} is missing; write it with pytest --update-golden"
    expected = path.read_text(encoding="utf-8")
    assert text == expected, f"{path.name} differs; if that is meant, run pytest --update-golden and review the diff"


def test_all_events_have_golden_files() -> None:
    """Each event is there, with each tier that it has a battery for."""
    assert {event for event, _ in CASES} == {
        "llama-bump", "nightly", "patch-edit", "pull-request", "radix-cache", "release", "manual-full"
    }  # fmt: skip
    assert len(CASES) == 15


@pytest.mark.parametrize(("event", "tier"), CASES)
def test_matrix(fixed: Manifest, event: str, tier: int, update_golden: bool) -> None:
    """The matrices of each event and tier stay what they were."""
    plan = build_plan(fixed, event=event, tiers=[tier])
    value = {"matrix": leg_matrix(plan), "builds": build_matrix(plan)}
    compare(GOLDEN / f"{event}-tier-{tier}.json", json.dumps(value, indent=1) + "\n", update_golden)


def test_plan(fixed: Manifest, update_golden: bool) -> None:
    """The whole plan of one event, with its digest."""
    plan = build_plan(fixed, event="llama-bump", families=["mamba*", "gpt2", "qwen2vl"])
    compare(GOLDEN / "plan.json", plan_text(plan), update_golden)


def test_table(fixed: Manifest, update_golden: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person reads, without colours."""
    monkeypatch.setattr("matrixgen.report.style", lambda text, **_kwargs: text)
    plan = build_plan(fixed, event="llama-bump", tiers=[1, 3])
    compare(GOLDEN / "table.txt", plan_table(plan) + "\n", update_golden)


def test_no_golden_file_is_left_over() -> None:
    """Every golden file belongs to a case above."""
    expected = {f"{event}-tier-{tier}.json" for event, tier in CASES} | {"plan.json", "table.txt"}
    assert {path.name for path in GOLDEN.iterdir() if path.is_file()} == expected
