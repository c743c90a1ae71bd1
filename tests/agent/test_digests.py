"""Digests of files and libraries."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from agent.digests import library_digests, sha256_of_file
from agent.engine.library import load_library
from agent.errors import FileUnreadable


def test_a_file_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    """Also an empty one."""
    for data in (b"", b"abc", bytes(1 << 20)):
        path = tmp_path / "file"
        path.write_bytes(data)
        assert sha256_of_file(path) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """With the path and what to do."""
    with pytest.raises(FileUnreadable, match="check the path"):
        sha256_of_file(tmp_path / name)


def test_all_libraries_of_the_build_are_in_it() -> None:
    """libllama and the ggml libraries that it stands on, each under its name."""
    found = library_digests(load_library().folder)
    assert any(name.startswith("libllama") for name in found)
    assert sum(name.startswith("libggml") for name in found) >= 2
    assert all(len(digest) == 64 for digest in found.values())


def test_only_shared_libraries_count(tmp_path: Path) -> None:
    """Other files of the folder are left out."""
    for name in ("libx.so", "liby.dylib", "libz.txt", "other.so"):
        (tmp_path / name).write_bytes(name.encode())
    assert list(library_digests(tmp_path)) == ["libx.so", "liby.dylib"]
