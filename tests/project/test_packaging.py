"""The distribution installs and works outside of a checkout, and `.ci/setup` says what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def project() -> dict[str, dict[str, object]]:
    """Read pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from this checkout with the pinned build backend."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-qq",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        ".",
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    return next(folder.glob("skippy_ci-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel with the base requirements alone, and give the folder of the scripts."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / ".ci" / "requirements" / "base.txt")], check=True)
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    return python.parent


def test_base_dependencies_are_few() -> None:
    """A plan job installs only these three, whatever the agent needs."""
    dependencies = project()["project"]["dependencies"]
    assert isinstance(dependencies, list)
    assert sorted(str(name).split(">=")[0] for name in dependencies) == ["click", "jsonschema", "pyyaml"]


def test_scripts_point_to_the_command_lines() -> None:
    """The two commands are the two packages' command lines."""
    assert project()["project"]["scripts"] == {"matrixgen": "matrixgen.cli:main", "skippy-agent": "agent.cli:main"}


@pytest.mark.slow
def test_wheel_holds_code_and_manifests_only(wheel: Path) -> None:
    """The wheel carries both packages with their type markers, and the manifests byte for byte."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"matrixgen", "agent"}
        assert {"matrixgen/py.typed", "agent/py.typed"} <= names
        carried = {
            name.removeprefix("matrixgen/_manifests/"): archive.read(name) for name in names if "/_manifests/" in name
        }
    kept = {
        path.relative_to(ROOT / "manifests").as_posix(): path.read_bytes()
        for path in (ROOT / "manifests").rglob("*")
        if path.is_file()
    }
    assert {"families.json", "pin.json", "batteries.json", "runners.json"} <= carried.keys()
    assert carried == kept


@pytest.mark.slow
@pytest.mark.parametrize("command", ["matrixgen", "skippy-agent"])
def test_command_runs_with_the_base_alone(installed: Path, command: str, tmp_path: Path) -> None:
    """`--help` works in a fresh environment that has neither the agent's nor the engine's libraries."""
    done = subprocess.run([installed / command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert command in done.stdout


@pytest.mark.slow
def test_installed_matrixgen_finds_its_manifests(installed: Path, tmp_path: Path) -> None:
    """Outside of a checkout `matrixgen emit` prints, from the wheel's manifests, what it prints inside of one."""
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_OUTPUT"}

    def emit(script: Path, folder: Path) -> str:
        command = [str(script), "emit", "--tier", "1"]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout

    outside = emit(installed / "matrixgen", tmp_path)
    assert json.loads(outside)["include"]
    assert outside == emit(Path(sys.executable).with_name("matrixgen"), ROOT)


def setup_with(folder: Path, tools: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a copy of `.ci/setup` in a folder where only the shell's own tools and the given scripts are on PATH."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "setup", folder / ".ci" / "setup")
    path = folder / "bin"
    path.mkdir()
    for name in ("sh", "dirname", "rm"):
        found = shutil.which(name)
        assert found
        (path / name).symlink_to(found)
    for name, text in tools.items():
        (path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (path / name).chmod(0o755)
    return subprocess.run(
        [path / "sh", ".ci/setup"], cwd=folder, env={"PATH": str(path)}, capture_output=True, text=True, check=False
    )


def test_setup_names_an_old_python(tmp_path: Path) -> None:
    """With only an old Python, setup says which one it found and how to name another, and makes nothing."""
    done = setup_with(
        tmp_path, {"c++": "exit 0", "python3": 'case "$1" in -V) echo Python 3.10.1 ;; *) exit 1 ;; esac'}
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed; python3 here is Python 3.10.1" in done.stderr
    assert "PYTHON=" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_setup_names_a_missing_compiler(tmp_path: Path) -> None:
    """Without a C++ compiler, setup says so before it makes or fetches anything."""
    done = setup_with(tmp_path, {"python3": f'exec "{sys.executable}" "$@"'})
    assert done.returncode == 1
    assert "a C++ compiler is needed" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_setup_refuses_an_old_environment(tmp_path: Path) -> None:
    """An environment of an older Python is named, not patched."""
    scripts = tmp_path / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "python").write_text(
        '#!/bin/sh\ncase "$1" in -V) echo Python 3.9.1 ;; *) exit 1 ;; esac\n', encoding="utf-8"
    )
    (scripts / "python").chmod(0o755)
    done = setup_with(tmp_path, {"c++": "exit 0"})
    assert done.returncode == 1
    assert "Python 3.9.1" in done.stderr
    assert "Remove .venv" in done.stderr
