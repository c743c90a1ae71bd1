"""`skippy-agent record-contracts`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agent.contracts import load_contracts
from tests.agent.conftest import ROOT, Cli


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A copy of the manifests to write into."""
    return Path(shutil.copytree(ROOT / "manifests", tmp_path / "manifests"))


def lines(folder: Path) -> list[str]:
    """The lines of the recorded contracts."""
    return (folder / "contracts.json").read_text(encoding="utf-8").splitlines()


def test_a_recorded_contract_is_one_line(cli: Cli, manifests: Path) -> None:
    """What was edited is put right by recording the architecture again, in its line and nowhere else."""
    before = lines(manifests)
    edited = [line.replace('"l_out-{k-1}"', '"other"') if line.startswith('"qwen3"') else line for line in before]
    assert edited != before
    (manifests / "contracts.json").write_text("\n".join(edited) + "\n", encoding="utf-8")
    done = cli("record-contracts", "qwen3-dense", "--manifests", manifests)
    assert done.code == 0, done.err
    assert lines(manifests) == before
    assert done.err == "qwen3: l_out-{k-1}\n"
    assert sorted(path.name for path in manifests.iterdir()) == sorted(
        path.name for path in (ROOT / "manifests").iterdir()
    )


def test_a_new_architecture_is_a_new_line(cli: Cli, manifests: Path) -> None:
    """Missing or not there at all: the line appears in its place, sorted."""
    before = lines(manifests)
    (manifests / "contracts.json").unlink()
    assert load_contracts(manifests) == {}
    done = cli("record-contracts", "rwkv7", "qwen3-dense", "--manifests", manifests)
    assert done.code == 0, done.err
    assert list(json.loads((manifests / "contracts.json").read_text(encoding="utf-8"))) == ["qwen3", "rwkv7"]
    kept = [line.rstrip(",") for line in before if line.startswith(('"qwen3"', '"rwkv7"'))]
    assert [line.rstrip(",") for line in lines(manifests)[1:-1]] == kept


def test_nothing_is_written_for_an_unknown_family(cli: Cli, manifests: Path) -> None:
    """The file stays as it is."""
    before = lines(manifests)
    done = cli("record-contracts", "qwen3-dense", "no-such-family", "--manifests", manifests)
    assert done.code == 2
    assert lines(manifests) == before


def test_contracts_that_cannot_be_read_are_bad_input(cli: Cli, manifests: Path) -> None:
    """They are not replaced by what happens to be recorded now."""
    (manifests / "contracts.json").write_text("{", encoding="utf-8")
    done = cli("record-contracts", "qwen3-dense", "--manifests", manifests)
    assert done.code == 2
    assert "contracts.json" in done.err
    assert lines(manifests) == ["{"]


@pytest.mark.slow
def test_recording_all_of_tier_1_changes_nothing(cli: Cli, manifests: Path) -> None:
    """The contracts of this repository are those of its pin."""
    before = lines(manifests)
    done = cli("record-contracts", "--manifests", manifests)
    assert done.code == 0, done.err
    assert lines(manifests) == before
