"""The checkout of the kit, and the command line of the agent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.agent.build.kit import write_checkout


@pytest.fixture(autouse=True)
def _needs_compiler() -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler on this machine")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small llama.cpp whose structs are those of the pinned binding."""
    return write_checkout(tmp_path / "llama.cpp")
