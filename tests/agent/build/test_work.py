"""A kept work folder saves compiling and decides nothing: what comes out is what a build from nothing gives."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agent.build.build import BuildRequest, build
from agent.build.make import Recipe
from agent.build.work import settle
from agent.errors import BuildFailed, FileUnreadable

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")


def make(checkout: Path, output: Path, work: Path | None = None, *extra: str) -> list[str]:
    """Build; the lines that were printed."""
    lines: list[str] = []
    recipe = Recipe(backend="cpu", extra=extra)
    build(
        BuildRequest(checkout=checkout, commit=None, queue=(), recipe=recipe, key="", output=output, work=work),
        lines.append,
    )
    return lines


def compiled(lines: list[str]) -> set[str]:
    """Sources that were compiled."""
    return {name for line in lines for name in ("cpu.c", "llama.c") if f"{name}.o" in line}


def test_only_what_changed_is_compiled_and_the_bytes_are_those_of_a_build_from_nothing(
    tmp_path: Path, checkout: Path
) -> None:
    """One source edited, with an old time: it alone is compiled again, and a build from nothing gives the same archive."""
    work = tmp_path / "work"
    assert compiled(make(checkout, tmp_path / "first.tar", work)) == {"cpu.c", "llama.c"}
    assert compiled(make(checkout, tmp_path / "again.tar", work)) == set()
    (checkout / "src" / "cpu.c").write_text("int ggml_cpu_init(int device) { return device + 1; }\n", encoding="utf-8")
    os.utime(checkout / "src" / "cpu.c", (1, 1))
    assert compiled(make(checkout, tmp_path / "kept.tar", work)) == {"cpu.c"}
    make(checkout, tmp_path / "anew.tar")
    first, again, kept, anew = ((tmp_path / f"{name}.tar").read_bytes() for name in ("first", "again", "kept", "anew"))
    assert first == again
    assert kept == anew
    assert kept != first


def test_other_flags_compile_everything_again(tmp_path: Path, checkout: Path) -> None:
    """Objects of other flags are never taken."""
    make(checkout, tmp_path / "a.tar", tmp_path / "work")
    lines = make(checkout, tmp_path / "b.tar", tmp_path / "work", "-DCMAKE_C_VISIBILITY_PRESET=default")
    assert compiled(lines) == {"cpu.c", "llama.c"}


def test_a_library_of_an_earlier_build_is_not_packed(tmp_path: Path, checkout: Path) -> None:
    """[B13] What another version left in the folder does not come along."""
    make(checkout, tmp_path / "a.tar", tmp_path / "work")
    text = (checkout / "CMakeLists.txt").read_text(encoding="utf-8").replace("0.1.2", "0.1.3")
    (checkout / "CMakeLists.txt").write_text(text, encoding="utf-8")
    make(checkout, tmp_path / "kept", tmp_path / "work")
    names = {path.name for path in (tmp_path / "kept" / "lib").iterdir()}
    assert "libggml-cpu.so.0.1.3" in names
    assert "libggml-cpu.so.0.1.2" not in names


def test_one_build_at_a_time(tmp_path: Path, checkout: Path) -> None:
    """A second build in the same folder is refused while the first one works."""
    from filelock import FileLock

    work = tmp_path / "work"
    work.mkdir()
    with FileLock(work / ".lock"), pytest.raises(BuildFailed, match="another build works"):
        make(checkout, tmp_path / "a.tar", work)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, checkout: Path) -> None:
    """A file in the way is bad input."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FileUnreadable, match="cannot be written"):
        make(checkout, tmp_path / "a.tar", tmp_path / "file" / "work")


def test_sources_become_exactly_those_that_are_wanted(tmp_path: Path) -> None:
    """Added, removed, changed, a folder for a file, a file for a folder, a link bent elsewhere, another mode."""
    target, wanted = tmp_path / "target", tmp_path / "wanted"
    for root in (target, wanted):
        (root / "same").mkdir(parents=True)
        (root / "same" / "file").write_text("same", encoding="utf-8")
        os.utime(root / "same" / "file", (9, 9))
    (target / "gone").mkdir()
    (target / "gone" / "file").write_text("", encoding="utf-8")
    (target / "was-a-file").write_text("", encoding="utf-8")
    (wanted / "was-a-file").mkdir()
    (wanted / "was-a-file" / "new").write_text("new", encoding="utf-8")
    (target / "was-a-folder").mkdir()
    (target / "was-a-folder" / "file").write_text("", encoding="utf-8")
    (wanted / "was-a-folder").write_text("now a file", encoding="utf-8")
    (target / "link").symlink_to("same")
    (wanted / "link").symlink_to("was-a-folder")
    for root, mode in ((target, 0o644), (wanted, 0o755)):
        (root / "script").write_text("", encoding="utf-8")
        (root / "script").chmod(mode)
    settle(wanted, target)

    def tree(root: Path) -> list[tuple[str, int, str]]:
        return [
            (path.relative_to(root).as_posix(), path.lstat().st_mode, path.readlink().name if path.is_symlink() else "")
            for path in sorted(root.rglob("*"))
        ]

    assert tree(target) == tree(wanted)
    assert (target / "was-a-file" / "new").read_text(encoding="utf-8") == "new"
    assert (target / "same" / "file").stat().st_mtime == 9
