"""Editing families.json: one family, one line, and nothing half-written."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrixgen import edit, files
from matrixgen.errors import CannotWrite, InvalidValue, ManifestInvalid, UnknownFamily
from matrixgen.manifest import load_manifest

FIXED = Path(__file__).parent / "golden" / "manifests"
LIVE = Path(__file__).parents[2] / "manifests"
NAMES = [family.family for family in load_manifest(FIXED).families]
Edit = Callable[[str, Callable[[Any], Any]], Path]


def text_of(root: Path) -> str:
    """families.json of a folder."""
    return (root / "families.json").read_text(encoding="utf-8")


def changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    """Lines that differ; both texts must have the same number of lines."""
    old, new = before.split("\n"), after.split("\n")
    assert len(old) == len(new)
    return [(a, b) for a, b in zip(old, new, strict=True) if a != b]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tier", [1, 2, 3, None])
def test_a_move_changes_one_line_or_is_refused(folder: Path, name: str, tier: int | None) -> None:
    """Whatever is moved where: exactly one line of one file changes, or the rules forbid it and nothing does."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    old = load_manifest(folder).family(name)
    refused: set[str] = set()
    try:
        edit.move(folder, name, tier)
    except ManifestInvalid as error:
        refused = {finding.id for finding in error.findings if finding.severity == "error"}
    if refused:
        assert refused <= {"MG012", "MG013", "MG015", "MG017"}
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        return
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {file for file in before if before[file] != after[file]} <= {"families.json"}
    lines = changed_lines(before["families.json"].decode(), after["families.json"].decode())
    assert len(lines) == (old.tier != tier)
    assert load_manifest(folder).family(name).tier == tier
    assert edit.formatted(folder)[0] == edit.formatted(folder)[1]


def test_move_mamba_of_the_shipped_manifest(tmp_path: Path) -> None:
    """The example of the issue: `move mamba --tier 2` is a diff of one line."""
    target = tmp_path / "manifests"
    target.mkdir()
    for path in LIVE.glob("*.json"):
        (target / path.name).write_bytes(path.read_bytes())
    before = text_of(target)
    edit.move(target, "mamba", 2)
    ((old, new),) = changed_lines(before, text_of(target))
    assert old.replace('"tier": 1', '"tier": 2') == new
    assert '"family": "mamba"' in new


def test_moving_back_restores_the_bytes(folder: Path) -> None:
    """A move and its reverse leave no trace."""
    before = text_of(folder)
    edit.move(folder, "mamba", None)
    edit.move(folder, "mamba", 1)
    assert text_of(folder) == before


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(order=st.permutations(range(len(NAMES))), tier=st.sampled_from([1, 2]))
def test_a_move_does_not_tidy_up(folder: Path, order: list[int], tier: int) -> None:
    """In a file whose rows are not sorted, still only the one line changes."""
    rows = json.loads(text_of(FIXED))["families"]
    body = ",\n".join(edit.row_text(rows[index]) for index in order)
    text = '{"schema_version": 1, "families": [\n' + body + "\n]}"
    (folder / "families.json").write_text(text, encoding="utf-8")
    edit.move(folder, "falcon-h1", tier)
    assert len(changed_lines(text, text_of(folder))) == (tier != 1)


def test_a_row_of_many_lines_is_refused(edit_file: Path) -> None:
    """A move cannot promise one line where a row is not one line; the message names fmt."""
    before = text_of(edit_file)
    with pytest.raises(InvalidValue, match="matrixgen fmt"):
        edit.move(edit_file, "mamba", 2)
    assert text_of(edit_file) == before


@pytest.fixture
def edit_file(folder: Path) -> Path:
    """A folder whose families.json is indented."""
    path = folder / "families.json"
    path.write_text(json.dumps(json.loads(text_of(folder)), indent=2), encoding="utf-8")
    return folder


def test_unknown_family_is_named(folder: Path) -> None:
    """Nothing is written for a name that is not there."""
    with pytest.raises(UnknownFamily, match="mamba"):
        edit.move(folder, "mambo", 2)


def test_format_is_stable_and_sorted(edit_file: Path) -> None:
    """Canonical text has one row a line, sorted, in the one key order; formatting it again changes nothing."""
    now, canonical = edit.formatted(edit_file)
    assert now != canonical
    assert canonical == text_of(FIXED)
    assert edit.families_text(json.loads(canonical)["families"]) == canonical


def test_shipped_manifest_is_canonical() -> None:
    """`matrixgen fmt --check` passes on what this repository ships."""
    now, canonical = edit.formatted(LIVE)
    assert now == canonical


def test_format_finding_names_the_line(folder: Path) -> None:
    """validate points at the first line that is not canonical."""
    lines = text_of(folder).split("\n")
    lines[5], lines[6] = lines[6], lines[5]
    (folder / "families.json").write_text("\n".join(lines), encoding="utf-8")
    (finding,) = edit.form_finding(folder)
    assert (finding.id, finding.severity, finding.line) == ("MG029", "warning", 6)
    assert edit.form_finding(FIXED) == []


def test_notes_cannot_pose_as_a_row(edit: Edit) -> None:
    """Text that looks like a row, in somebody's notes, is not what is moved."""
    trap = '"family": "mamba", "tier": 1, "arch": "x"'

    def plant(data: Any) -> None:
        data["families"][0]["notes"] = trap

    root = edit("families", plant)
    from matrixgen import edit as module

    path = root / "families.json"
    path.write_text(module.families_text(json.loads(text_of(root))["families"]), encoding="utf-8")
    before = text_of(root)
    module.move(root, "mamba", 2)
    ((old, new),) = changed_lines(before, text_of(root))
    assert old.startswith('{"family": "mamba"')
    assert '"tier": 2' in new


def test_writing_keeps_mode_and_links(tmp_path: Path) -> None:
    """The file keeps its permissions, and a link stays a link to the file that changed."""
    real = tmp_path / "real.json"
    real.write_text("old", encoding="utf-8")
    real.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(real)
    files.write_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last step fails, the old text is there and no temporary file is left."""
    path = tmp_path / "a.json"
    path.write_text("old", encoding="utf-8")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match="No space left"):
        files.write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("name", ["", "none/x.json", "a\x00b"])
def test_impossible_targets_are_messages(tmp_path: Path, name: str) -> None:
    """A folder, a missing folder, a name that no system takes."""
    with pytest.raises(CannotWrite):
        files.write_atomically(tmp_path / name, "x")
