"""Quarantine: a leg left out with reason, ticket and last day, and never for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.errors import ManifestInvalid
from matrixgen.manifest import Manifest, check_manifest, load_manifest
from matrixgen.plan import build_plan
from matrixgen.quarantine import Quarantine, Quarantined

Edit = Callable[[str, Callable[[Any], Any]], Path]
Run = Callable[..., Any]
ENTRY = {
    "family": "mamba",
    "backend": "cuda",
    "reason": "wrong on one card",
    "ticket": "owner/repo#12",
    "expires": "2099-01-31",
}


def with_entries(*entries: dict[str, Any]) -> Callable[[Any], None]:
    """Put the entries into quarantine.json."""
    return lambda data: data["quarantine"].extend({**ENTRY, **entry} for entry in entries)


def test_a_leg_is_left_out_and_told(edit: Edit) -> None:
    """The leg is not planned, the plan says why, and the other backends run."""
    manifest = load_manifest(edit("quarantine", with_entries({})))
    plan = build_plan(manifest, event="nightly", tiers=[1])
    ids = {leg.id for leg in plan.legs}
    assert "mamba@cpu" in ids
    assert "mamba@cuda" not in ids
    (said,) = (entry.reason for entry in plan.skipped if entry.family == "mamba")
    assert said == "cuda: in quarantine until 2099-01-31: wrong on one card (owner/repo#12)"


def test_all_backends(edit: Edit) -> None:
    """A null backend stands for each."""
    manifest = load_manifest(edit("quarantine", with_entries({"backend": None})))
    plan = build_plan(manifest, event="nightly", tiers=[1])
    assert not [leg for leg in plan.legs if leg.family.family == "mamba"]
    assert len([entry for entry in plan.skipped if entry.family == "mamba"]) == 2


def test_a_family_that_is_named_runs(edit: Edit) -> None:
    """Who names the family wants to see it; a glob does not name it."""
    manifest = load_manifest(edit("quarantine", with_entries({"backend": None})))
    assert [leg.id for leg in build_plan(manifest, event="llama-bump", families=["mamba"]).legs] == ["mamba@cpu"]
    plan = build_plan(manifest, event="llama-bump", families=["mamba*"])
    assert [leg.id for leg in plan.legs] == ["mamba2@cpu"]


@pytest.mark.parametrize(
    ("entries", "id_", "pointer"),
    [
        ([{"family": "no-such"}], "MG031", "/quarantine/0/family"),
        ([{"backend": "tpu"}], "MG031", "/quarantine/0/backend"),
        ([{}, {}], "MG032", "/quarantine/1/family"),
        ([{"backend": None}, {}], "MG032", "/quarantine/1/family"),
        ([{"expires": "2099-02-30"}], "MG033", "/quarantine/0/expires"),
        ([{"expires": "2020-01-01"}], "MG034", "/quarantine/0/expires"),
        ([{"expires": "soon"}], "MG010", "/quarantine/0/expires"),
        ([{"ticket": "later"}], "MG010", "/quarantine/0/ticket"),
        ([{"reason": ""}], "MG010", "/quarantine/0/reason"),
    ],
)
def test_wrong_entries_are_errors(edit: Edit, entries: list[dict[str, Any]], id_: str, pointer: str) -> None:
    """Each fault has its id and its place."""
    root = edit("quarantine", with_entries(*entries))
    findings, manifest = check_manifest(root, today="2026-11-29")
    assert manifest is None
    assert [(f.id, f.pointer) for f in findings if f.severity == "error"] == [(id_, pointer)]


@pytest.mark.parametrize(("today", "good"), [("2099-01-30", True), ("2099-01-31", True), ("2099-02-01", False)])
def test_the_last_day_still_holds(edit: Edit, today: str, good: bool) -> None:
    """The day after is an error, and every command that reads the manifest stops."""
    root = edit("quarantine", with_entries({}))
    if good:
        assert load_manifest(root, today=today).quarantine
    else:
        with pytest.raises(ManifestInvalid):
            load_manifest(root, today=today)


def test_commands_know_the_day(run: Run, edit: Edit) -> None:
    """`emit` and `validate` refuse an entry that ended long ago, with the ticket."""
    root = edit("quarantine", with_entries({"expires": "2020-01-01"}))
    for command in (("emit", "--tier", "1"), ("validate",)):
        result = run(*command, "--manifests", str(root))
        assert result.code == 1
        assert "MG034" in result.out + result.err
        assert "owner/repo#12" in result.out + result.err


def test_the_nearer_entry_counts(fixed: Manifest) -> None:
    """The entry of the backend comes before the one for all."""
    both = [Quarantined("a", None, "all", "o/r#1", "2099-01-01"), Quarantined("a", "cpu", "one", "o/r#2", "2099-01-01")]
    found = [Quarantine(both).of("a", backend) for backend in ("cpu", "cuda")]
    assert [entry.reason for entry in found if entry] == ["one", "all"]
    assert fixed._replace(quarantine=()).quarantine == ()
