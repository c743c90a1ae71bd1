"""`skippy-agent refuse`: what it asks of a build, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.commands import refuse
from agent.errors import InfraError
from agent.lanes.result import LaneResult, Status
from agent.runner.refuse import Refusal
from matrixgen.manifest import Manifest
from tests.agent.conftest import Cli


def answers(monkeypatch: pytest.MonkeyPatch, **by_architecture: Status) -> list[str]:
    """Let the build answer as told, and pass otherwise; returns what it is asked."""
    asked: list[str] = []

    def check(architecture: str) -> Refusal:
        asked.append(architecture)
        status = by_architecture.get(architecture, Status.PASS)
        if status is Status.INFRA:
            raise InfraError("no answer in time")
        problems = ("it loads",) if status is Status.FAIL else ()
        found = LaneResult(lane="refuse", status=status, comparisons=3, summary="refused", problems=problems)
        return Refusal(found, {})

    monkeypatch.setattr(refuse, "check_refusal", check)
    return asked


def test_every_tombstone_is_asked_for(cli: Cli, monkeypatch: pytest.MonkeyPatch, manifest: Manifest) -> None:
    """Without names all families of tier 3, by their architecture, and nothing else."""
    asked = answers(monkeypatch)
    done = cli("refuse", "--json")
    assert done.code == 0
    assert asked == [row.arch for row in manifest.families if row.tier == 3]
    assert {row["status"] for row in json.loads(done.out)} == {"pass"}


def test_one_that_is_loaded_is_red_whatever_the_others_are(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure weighs more than a machine that did not answer, and both more than passes; the last line counts."""
    answers(monkeypatch, gpt2=Status.FAIL, arcee=Status.INFRA)
    done = cli("refuse", "arcee", "gpt2", "bloom")
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines == [
        "infra  arcee: no answer in time",
        "fail   gpt2: it loads",
        "pass   bloom: refused",
        "1 of 3 dropped families are refused",
    ]
    assert cli("refuse", "arcee", "bloom").code == 4


def test_the_stock_llama_cpp_is_red(cli: Cli) -> None:
    """It still knows the family, and its own words are shown."""
    done = cli("refuse", "arcee")
    assert done.code == 1
    assert "arcee.context_length" in done.out


@pytest.mark.parametrize(("family", "code", "words"), [("qwen3-dense", 2, "not dropped"), ("nobody", 2, "nobody")])
def test_a_family_that_is_not_dropped_is_bad_input(cli: Cli, family: str, code: int, words: str) -> None:
    """Only tombstones can be asked for."""
    done = cli("refuse", family)
    assert (done.code, done.out) == (code, "")
    assert words in done.err


def test_nothing_to_refuse_is_not_green(cli: Cli, tmp_path: Path, manifest: Manifest) -> None:
    """A manifest without tombstones selects nothing."""
    for path in manifest.root.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        if path.name == "families.json":
            text = text.replace('"tier": 3', '"tier": null')
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    done = cli("refuse", "--manifests", tmp_path)
    assert done.code == 3
    assert "no dropped family" in done.err
