"""`inventory` and `download-commands`: every model file has a row, and every file its exact revision."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.downloads import download_lines
from matrixgen.errors import InvalidValue
from matrixgen.inventory import take_inventory
from matrixgen.manifest import Manifest

Run = Callable[..., Any]


@pytest.fixture
def checkout(tmp_path: Path, fixed: Manifest) -> Path:
    """A llama.cpp checkout with exactly the models and architectures of the fixed manifest."""
    root = tmp_path / "llama.cpp"
    models = root / "src" / "models"
    models.mkdir(parents=True)
    for stem in {stem for family in fixed.families for stem in family.llama_models}:
        (models / f"{stem}.cpp").write_text("// graph\n", encoding="utf-8")
    names = [f'    {{ LLM_ARCH_{n},  "{f.arch}" }},\n' for n, f in enumerate(fixed.families) if f.arch]
    (root / "src" / "llama-arch.cpp").write_text("".join(names), encoding="utf-8")
    return root


def ids(manifest: Manifest, checkout: Path, *, gate: bool = False) -> dict[str, str]:
    """Finding -> severity."""
    return {problem.id: problem.severity for problem in take_inventory(manifest, checkout, gate=gate).problems}


def test_all_is_classified(fixed: Manifest, checkout: Path) -> None:
    """With the models of the manifest there is no error, and each stem has its rows."""
    found = take_inventory(fixed, checkout)
    assert all(found.models.values())
    assert not [problem for problem in found.problems if problem.severity == "error"]


def test_an_unknown_model_fails(run: Run, checkout: Path, folder: Path) -> None:
    """A pin that brings a model nobody looked at is exit code 1, by name."""
    (checkout / "src" / "models" / "brand-new.cpp").write_text("", encoding="utf-8")
    result = run("inventory", "--llama-src", str(checkout), "--manifests", str(folder))
    assert result.code == 1
    assert "MG040" in result.out
    assert "brand-new" in result.out


def test_a_model_that_is_gone(fixed: Manifest, checkout: Path) -> None:
    """For a row of tier 1 an error, for a tombstone what was to be expected."""
    (checkout / "src" / "models" / "mamba.cpp").unlink()
    assert ids(fixed, checkout)["MG041"] == "error"
    (checkout / "src" / "models" / "mamba.cpp").write_text("", encoding="utf-8")
    (checkout / "src" / "models" / "gpt2.cpp").unlink()
    assert ids(fixed, checkout)["MG041"] == "warning"


def test_an_architecture_that_is_not_known(fixed: Manifest, checkout: Path) -> None:
    """A row whose architecture this llama.cpp cannot load is an error in tier 1."""
    path = checkout / "src" / "llama-arch.cpp"
    path.write_text(path.read_text(encoding="utf-8").replace('"kimi-linear"', '"kimi-other"'), encoding="utf-8")
    assert ids(fixed, checkout)["MG043"] == "error"
    path.unlink()
    assert "MG043" not in ids(fixed, checkout)


def test_the_gate(fixed: Manifest, checkout: Path) -> None:
    """A P0 or P1 row without evidence is a warning, with --gate an error; a tombstone is no longer asked."""
    rows = tuple(
        f._replace(priority="p0", status="needs_candidate") if f.family in ("mamba", "gpt2") else f
        for f in fixed.families
    )
    manifest = fixed._replace(families=rows)
    for gate, severity in ((False, "warning"), (True, "error")):
        problems = take_inventory(manifest, checkout, gate=gate).problems
        said = [(p.severity, p.message.split()[0]) for p in problems if p.id == "MG042"]
        assert (severity, "mamba") in said
        assert (severity, "gpt2") not in said


@pytest.mark.parametrize("make", ["none", "empty", "file"])
def test_nothing_to_look_at_is_an_error(fixed: Manifest, tmp_path: Path, make: str) -> None:
    """Absent is not green: an inventory of no model file is refused."""
    root = tmp_path / "x"
    if make == "empty":
        (root / "src" / "models").mkdir(parents=True)
    elif make == "file":
        root.write_text("", encoding="utf-8")
    with pytest.raises(InvalidValue, match="llama-src"):
        take_inventory(fixed, root)


def test_file_names_of_a_checkout_cannot_command(run: Run, checkout: Path, folder: Path) -> None:
    """A checkout is somebody else's: a file name with control characters is printed as text."""
    (checkout / "src" / "models" / "\x1b[31m\n::error::x.cpp").write_text("", encoding="utf-8")
    result = run("inventory", "--llama-src", str(checkout), "--manifests", str(folder), "--missing-only")
    assert result.code == 1
    assert "\x1b" not in result.out
    assert not [line for line in result.out.splitlines() if line.startswith("::")]


def test_the_list_can_be_cut_by_priority(run: Run, checkout: Path, folder: Path) -> None:
    """`--priority` lists that priority only."""
    result = run("inventory", "--llama-src", str(checkout), "--manifests", str(folder), "--priority", "p0")
    assert result.code == 0
    table = result.out.split("\n\n")[0]
    assert " p0 " in table
    assert " p1 " not in table.split("families.json")[0]


def test_download_lines_are_exact(live: Manifest) -> None:
    """C9: each line has a full revision and every file of the row; what cannot be exact is a comment with the reason."""
    lines = download_lines(live.families)
    known = {(a.repo, a.revision) for f in live.families for a in (f.artifact, f.projector) if a is not None}
    commands = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert len(commands) > 50
    for words in commands:
        assert words[:2] == ["hf", "download"]
        assert words[-2] == "--revision"
        assert re.fullmatch("[0-9a-f]{40}", words[-1])
        assert (words[2], words[-1]) in known
        assert all(path.endswith(".gguf") for path in words[3:-2])
    assert any(line.startswith("# mamba2: not pinned") for line in lines)
    assert any(line.startswith("# gpt2: dropped") for line in lines)


def test_download_commands(run: Run) -> None:
    """The command selects by tier, glob and priority, and an empty selection is an error."""
    assert run("download-commands", "--family", "mamba").out.count("\n") == 1
    assert run("download-commands", "--tier", "1", "--priority", "p0").code == 0
    assert run("download-commands", "--tier", "9").code == 3
    assert run("download-commands", "--family", "no-such").code == 2
