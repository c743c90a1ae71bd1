"""`tombstones`: nothing of a dropped family may be left, and a search of nothing is not green."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.errors import InvalidValue
from matrixgen.manifest import Manifest
from matrixgen.tombstones import leftovers, release_notes

Run = Callable[..., Any]
PATCH = """From 0000000 Mon Sep 17 00:00:00 2001
Subject: [PATCH] stage filter
--- a/src/models/{stem}.cpp
+++ b/src/models/{stem}.cpp
@@ -1,2 +1,3 @@
 void graph() {{
+    skippy();
 }}
"""


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A checkout of the product from which every tombstone is gone."""
    root = tmp_path / "product"
    patches = root / "third_party" / "llama.cpp" / "patches"
    patches.mkdir(parents=True)
    (patches / "0001-kept.patch").write_text(PATCH.format(stem="mamba"), encoding="utf-8")
    (root / "family_capability.rs").write_text('infer("mamba", KvRecurrent);\n', encoding="utf-8")
    return root


def found(manifest: Manifest, *paths: Path) -> list[tuple[str, int]]:
    """(id, line) of what is left."""
    return [(finding.id, finding.line) for finding in leftovers(manifest, paths).findings]


def test_a_clean_checkout(run: Run, product: Path, folder: Path) -> None:
    """Kept families are no leftovers; the files that were searched are counted."""
    result = run("tombstones", "--checkout", str(product), "--manifests", str(folder))
    assert result.code == 0
    assert "2 files searched: 0 errors" in result.out


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("p/0002.patch", PATCH.format(stem="gpt2"), ("MG050", 3)),
        ("p/0002.patch", PATCH.format(stem="starcoder2"), ("MG050", 3)),
        ("p/0002.patch", "--- a/src/x.cpp\n+++ b/src/x.cpp\n+    case LLM_ARCH_GPT2: break;\n", ("MG050", 3)),
        ("a/family_capability.rs", '\ninfer("gpt2", ResidentKv);\n', ("MG051", 2)),
        ("a/family_capability_rules.rs", 'infer("chatglm", ResidentKv);\n', ("MG051", 1)),
        ("docs/reviewed-family-capabilities.json", '{\n"family": "StarCoder2"\n}\n', ("MG051", 2)),
        ("docs/llama-parity-candidates.json", '{"llama_model": "gpt2"}\n', ("MG051", 1)),
    ],
)
def test_leftovers_are_found(fixed: Manifest, product: Path, file: str, text: str, expected: tuple[str, int]) -> None:
    """A patch that edits the graph or names the architecture, and every kind of table, with the line."""
    path = product / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert found(fixed, product) == [expected]
    assert found(fixed, path) == [expected]


def test_the_command_fails_while_something_is_left(run: Run, product: Path, folder: Path) -> None:
    """Exit code 1 in every format, and the same finding in all of them."""
    (product / "0002.patch").write_text(PATCH.format(stem="gpt2"), encoding="utf-8")
    for output_format in ("text", "json", "github", "sarif"):
        words = ("--format", output_format, "--manifests", str(folder))
        result = run("tombstones", "--checkout", str(product), *words)
        assert result.code == 1
        assert "MG050" in result.out


def test_a_kept_row_protects_what_it_shares(fixed: Manifest, tmp_path: Path) -> None:
    """A deleted line, a context line and a name of a kept row are no leftover of a patch."""
    path = tmp_path / "0001.patch"
    path.write_text(" case LLM_ARCH_GPT2:\n+ case LLM_ARCH_MAMBA:\n+ case LLM_ARCH_GPT2000:\n", encoding="utf-8")
    assert found(fixed, path) == []


@pytest.mark.parametrize("make", ["none", "empty"])
def test_a_search_of_nothing_is_refused(fixed: Manifest, tmp_path: Path, make: str) -> None:
    """Absent is not green."""
    path = tmp_path / "x"
    if make == "empty":
        path.mkdir()
    with pytest.raises(InvalidValue, match=r"checkout|search"):
        leftovers(fixed, [path])
    with pytest.raises(InvalidValue):
        leftovers(fixed, [])


def test_a_file_that_cannot_be_read_is_not_clean(fixed: Manifest, tmp_path: Path) -> None:
    """Bytes that are not UTF-8 stop the search."""
    path = tmp_path / "0001.patch"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidValue, match="UTF-8"):
        leftovers(fixed, [path])


def test_release_notes_name_every_tombstone(live: Manifest) -> None:
    """Each dropped family is a row with architecture and reason, and no kept one is."""
    text = release_notes(live)
    dropped = [family for family in live.families if family.dropped]
    assert f"{len(dropped)} model families" in text
    for family in dropped:
        assert f"| `{family.family}` | `{family.arch}` | {family.reason} |" in text
    assert text.count("\n| `") == len(dropped)
