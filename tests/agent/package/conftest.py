"""Packages of twins, each written once, and copies of them to break."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.package.manifest import Package, read_package
from tests.agent.package.kit import package_of

Packages = Callable[[str], Package]


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory, twin: Callable[[str], Path]) -> Packages:
    """The package of a twin; written once, never changed."""
    made: dict[str, Package] = {}

    def get(name: str) -> Package:
        if name not in made:
            made[name] = package_of(twin(name), tmp_path_factory.mktemp(f"package-{name}") / "package")
        return made[name]

    return get


@pytest.fixture
def copies(packages: Packages, tmp_path: Path) -> Packages:
    """A copy of the package of a twin that a test may break."""

    def get(name: str) -> Package:
        folder = tmp_path / f"copy-{name}"
        shutil.copytree(packages(name).folder, folder)
        return read_package(folder)

    return get
