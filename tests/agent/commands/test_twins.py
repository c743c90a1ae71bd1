"""`skippy-agent twins`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.commands.folders import cache_folder, twin_folder
from agent.twin.catalog import RECIPES
from agent.twin.without import WITHOUT_TWIN
from tests.agent.conftest import Cli


def test_all_twins_are_listed(cli: Cli, children: list[list[str]]) -> None:
    """Every recipe with its layers and its digest; nothing is built."""
    done = cli("twins", "--json")
    assert (done.code, done.err) == (0, "")
    every = {row["architecture"]: row for row in json.loads(done.out)}
    assert {name: row["without_twin"] for name, row in every.items() if "without_twin" in row} == WITHOUT_TWIN
    rows = {name: row for name, row in every.items() if "without_twin" not in row}
    assert set(rows) == set(RECIPES)
    assert all(row["layers"] == RECIPES[name].n_layer for name, row in rows.items())
    assert all(row["path"] is None for row in rows.values())
    assert len({row["digest"] for row in rows.values()}) == len(rows)
    assert children == []
    table = cli("twins").out
    assert all(name in table for name in {*RECIPES, *WITHOUT_TWIN})
    assert "no twin: it is an encoder" in table


def test_a_twin_is_built_with_the_same_bytes_anywhere(
    process: Cli, twin: Callable[[str], Path], tmp_path: Path
) -> None:
    """In an empty cache, the file has the name and the bytes of the one that other tests use."""
    environment = {**os.environ, "SKIPPY_CACHE": str(tmp_path / "cache")}
    done = process("twins", "qwen3", "--build", "--json", env=environment)
    assert (done.code, done.err) == (0, "")
    (row,) = json.loads(done.out)
    built = Path(row["path"])
    assert built.parent == tmp_path / "cache" / "twins"
    known = twin("qwen3")
    assert built.name == known.name
    assert hashlib.sha256(built.read_bytes()).digest() == hashlib.sha256(known.read_bytes()).digest()


def test_a_cache_that_cannot_be_written_is_infra(process: Cli, tmp_path: Path) -> None:
    """A file in the way: one line that names the folder and what to do, exit code 4."""
    blocked = tmp_path / "blocked"
    blocked.write_text("", encoding="utf-8")
    done = process("twins", "qwen3", "--build", env={**os.environ, "SKIPPY_CACHE": str(blocked)})
    assert done.code == 4, done.err
    assert done.err.startswith("error: ")
    assert "blocked" in done.err
    assert "SKIPPY_CACHE" in done.err


def test_a_named_twin_is_shown_with_what_differs_from_the_family(cli: Cli) -> None:
    """Its source and its notes; the others are left out."""
    done = cli("twins", "grok")
    words = " ".join(done.out.split())
    assert "published configuration of xai-org/grok-2" in words
    assert "8 layers of 64" in words
    assert "qwen3" not in words


@pytest.mark.parametrize(("architecture", "word"), [("bert", "an encoder"), ("plm", "GGML_ASSERT")])
def test_an_architecture_without_a_twin_says_why(cli: Cli, architecture: str, word: str) -> None:
    """One line with the reason, exit code 2."""
    done = cli("twins", architecture, "--build")
    assert done.code == 2
    assert word in done.err


def test_an_unknown_architecture_names_the_nearest(cli: Cli) -> None:
    """A typing error is not an empty list."""
    done = cli("twins", "quen3")
    assert done.code == 2
    assert "qwen3" in done.err


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`SKIPPY_CACHE` first, then the user's cache folder."""
    monkeypatch.setenv("SKIPPY_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    assert twin_folder() == tmp_path / "twins"
    monkeypatch.delenv("SKIPPY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "skippy-ci"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "skippy-ci"
