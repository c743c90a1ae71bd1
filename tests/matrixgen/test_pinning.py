"""`pin` and `add`: from the product's layout and from words, whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.errors import InvalidValue
from matrixgen.manifest import load_manifest
from matrixgen.pinning import read_patches, read_upstream

Run = Callable[..., Any]
SHA = "5d7f68fb4ef9cb1b5b06a1fb7b9d0bbc3cb7c9b8"


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """The product's folder: a pin and two patches whose names are not in the order in which they were written."""
    root = tmp_path / "llama.cpp"
    (root / "patches").mkdir(parents=True)
    (root / "upstream.txt").write_text(f"{SHA}\n", encoding="utf-8")
    (root / "patches" / "0002-b.patch").write_bytes(b"two\r\n")
    (root / "patches" / "0001-a.patch").write_bytes(b"one\n")
    (root / "patches" / "README").write_text("not a patch", encoding="utf-8")
    return root


def test_reading_upstream(upstream: Path) -> None:
    """The commit, and the patches by name with the digest of their bytes, line ends as they are."""
    commit, patches = read_upstream(upstream)
    assert commit == SHA
    assert [patch.name for patch in patches] == ["0001-a.patch", "0002-b.patch"]
    assert patches[1].sha256 == hashlib.sha256(b"two\r\n").hexdigest()


def test_setting_the_pin(run: Run, folder: Path, upstream: Path) -> None:
    """G14: the pin follows the product; its build keys change with it and it agrees afterwards."""
    before = load_manifest(folder)
    assert run("pin", "--upstream", str(upstream), "--check", "--manifests", str(folder)).code == 1
    version = upstream / "cache-version.txt"
    version.write_text("v3\n", encoding="utf-8")
    words = ("--upstream", str(upstream), "--cache-version", str(version), "--manifests", str(folder))
    assert run("pin", *words).code == 0
    after = load_manifest(folder).pin
    assert (after.commit, len(after.patches), after.cache_version) == (SHA, 2, "v3")
    assert after.version is None, "the label of the old commit must not stay beside the new one"
    assert after.binding == before.pin.binding
    result = run("pin", "--upstream", str(upstream), "--check", "--manifests", str(folder))
    assert (result.code, result.out) == (0, "pin.json and the product agree\n")


@pytest.mark.parametrize("change", ["edit", "rename", "add", "remove"])
def test_every_change_of_the_queue_is_seen(run: Run, folder: Path, upstream: Path, change: str) -> None:
    """One byte, a name, one more, one less: the check names the patch."""
    run("pin", "--upstream", str(upstream), "--manifests", str(folder))
    patch = upstream / "patches" / "0002-b.patch"
    match change:
        case "edit":
            patch.write_bytes(b"two\n")
        case "rename":
            patch.rename(patch.with_name("0003-c.patch"))
        case "add":
            (upstream / "patches" / "0003-c.patch").write_bytes(b"x")
        case _:
            patch.unlink()
    result = run("pin", "--upstream", str(upstream), "--check", "--manifests", str(folder))
    assert result.code == 1
    assert "patch 000" in result.out


@pytest.mark.parametrize("text", ["", "b10516", SHA[:12], "main", SHA.upper(), f"{SHA}\n{SHA}", "g" * 40])
def test_only_a_full_commit_is_a_pin(upstream: Path, text: str) -> None:
    """G12: a tag, a branch or a short id cannot be resolved in a shallow clone, and means different things over time."""
    (upstream / "upstream.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidValue, match="full commit"):
        read_upstream(upstream)


@pytest.mark.parametrize("commit", ["b10516", SHA[:12], SHA.upper(), "", "x" * 40])
def test_the_command_line_takes_full_commits_only(run: Run, folder: Path, commit: str) -> None:
    """The result is checked before it is written: nothing changes."""
    before = (folder / "pin.json").read_bytes()
    assert run("pin", "--manifests", str(folder), "--", commit).code == 1
    assert (folder / "pin.json").read_bytes() == before


def test_printing_changes_nothing(run: Run, folder: Path) -> None:
    """Without a value, the pin is shown and the file keeps its bytes."""
    before = (folder / "pin.json").read_bytes()
    result = run("pin", "--manifests", str(folder))
    assert result.code == 0
    assert "030ebb558a5820b444a8f836ed5cdd46c9b4bd7a" in result.out
    assert (folder / "pin.json").read_bytes() == before


def test_an_empty_queue_is_not_a_queue(tmp_path: Path) -> None:
    """A folder without patches was probably the wrong one."""
    with pytest.raises(InvalidValue, match="patch"):
        read_patches(tmp_path)
    with pytest.raises(InvalidValue):
        read_upstream(tmp_path / "none")


def test_adding_a_row(run: Run, folder: Path) -> None:
    """One line more, in its place, complete, and the file stays canonical."""
    before = (folder / "families.json").read_text(encoding="utf-8").splitlines()
    words = ("--arch", "mamba", "--shape", "recurrent", "--repo", "a/b", "--revision", "1" * 40, "--tier", "2")
    result = run("add", "mamba-x", *words, "--file", f"x.gguf:5:{'2' * 64}", "--manifests", str(folder))
    assert result.code == 0, result.err
    after = (folder / "families.json").read_text(encoding="utf-8").splitlines()
    assert [line for line in after if line not in before] == [line for line in after if '"mamba-x"' in line]
    assert len(after) == len(before) + 1
    family = load_manifest(folder).family("mamba-x")
    assert (family.tier, family.cache, family.unpinned) == (2, "KvRecurrent", None)
    assert run("fmt", "--check", "--manifests", str(folder)).code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("mamba", "--arch", "mamba", "--shape", "recurrent"), 1),
        (("x y", "--arch", "mamba", "--shape", "recurrent"), 1),
        (("new", "--arch", "gpt2", "--shape", "dense"), 1),
        (("new", "--arch", "mamba", "--shape", "round"), 1),
        (("new", "--arch", "mamba", "--shape", "recurrent", "--cache", "ResidentKv"), 1),
        (("new", "--arch", "mamba", "--shape", "dense", "--file", "a.gguf"), 2),
        (("new", "--arch", "mamba", "--shape", "dense", "--repo", "a/b", "--file", "a.gguf:x:y"), 2),
        (("new", "--arch", "mamba", "--shape", "dense", "--repo", "a/b", "--file", "../a.gguf"), 1),
        (("new", "--shape", "dense"), 2),
    ],
)
def test_a_wrong_row_changes_nothing(run: Run, folder: Path, words: tuple[str, ...], code: int) -> None:
    """Whatever a rule forbids is found before a byte is written."""
    before = (folder / "families.json").read_bytes()
    assert run("add", *words, "--manifests", str(folder)).code == code
    assert (folder / "families.json").read_bytes() == before


def test_a_file_out_of_form_is_not_rewritten_by_the_way(run: Run, folder: Path) -> None:
    """`add` changes one line; where the whole file would change, `fmt` comes first."""
    path = folder / "families.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
    result = run("add", "new", "--arch", "mamba", "--shape", "recurrent", "--manifests", str(folder))
    assert result.code == 2
    assert "matrixgen fmt" in result.err
