"""Manifest folders to break, and the command line to call."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from matrixgen.cli.group import run as run_command
from matrixgen.manifest import Manifest, load_manifest

ROOT = Path(__file__).parents[2]
FIXED = Path(__file__).parent / "golden" / "manifests"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a command gave back."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]
Edit = Callable[[str, Callable[[Any], Any]], Path]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command line in this process, without the environment of a workflow."""
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    monkeypatch.chdir(ROOT)

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run_command(list(arguments))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code=code, out=captured.out, err=captured.err)

    return call


@pytest.fixture(scope="session")
def live() -> Manifest:
    """The manifest of this repository."""
    return load_manifest(ROOT / "manifests")


@pytest.fixture(scope="session")
def fixed() -> Manifest:
    """A small manifest that maintainers do not edit: the base of golden files."""
    return load_manifest(FIXED)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the fixed manifest to edit."""
    target = tmp_path / "manifests"
    shutil.copytree(FIXED, target)
    return target


@pytest.fixture
def edit(folder: Path) -> Edit:
    """Change one file of `folder` through a function on its JSON; the folder."""

    def change(name: str, function: Callable[[Any], Any]) -> Path:
        path = folder / f"{name}.json"
        data = json.loads(path.read_text(encoding="utf-8"))
        result = function(data)
        path.write_text(json.dumps(data if result is None else result), encoding="utf-8")
        return folder

    return change
