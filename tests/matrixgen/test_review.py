"""`review`: the tiers against what is served."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixgen.errors import InvalidValue
from matrixgen.manifest import Manifest
from matrixgen.review import read_telemetry, review

Run = Callable[..., Any]


def served(manifest: Manifest, **requests: int) -> dict[str, int]:
    """Traffic on all of tier 1, and what the test says instead."""
    base = {family.arch: 1000 for family in manifest.families if family.tier == 1 and family.arch}
    return {**base, **{name.replace("_", "-"): count for name, count in requests.items()}}


@pytest.mark.parametrize(
    ("requests", "id_", "command"),
    [
        ({"gpt2": 1}, "MG060", "matrixgen move gpt2 --tier 2"),
        ({"chatglm": 7}, "MG060", "matrixgen move chatglm --tier 2"),
        ({"gemma2": 1000}, "MG061", "matrixgen move gemma2 --tier 1"),
        ({"mamba": 0}, "MG062", "matrixgen move mamba --tier 2"),
        ({"no_such": 5}, "MG063", None),
    ],
)
def test_what_disagrees_is_named(fixed: Manifest, requests: dict[str, int], id_: str, command: str | None) -> None:
    """Tombstones with traffic, tier 2 in production, tier 1 that is idle, unknown names; each with its command."""
    found = review(fixed, served(fixed, **requests), share=0.001)
    assert [problem.id for problem in found.problems] == [id_]
    assert found.commands == ((command,) if command else ())


def test_tiers_that_agree_give_nothing(fixed: Manifest) -> None:
    """Traffic on tier 1 and a trickle on tier 2 is as it should be."""
    found = review(fixed, served(fixed, gemma2=1), share=0.01)
    assert (found.problems, found.commands) == ((), ())


def test_the_printed_commands_work(run: Run, folder: Path, tmp_path: Path) -> None:
    """Running what is printed brings tiers and traffic together: the next review has no error."""
    path = tmp_path / "t.csv"
    path.write_text("architecture,requests\ngpt2,50\nGEMMA2,5000\nmamba,10000\n", encoding="utf-8")
    result = run("review", "--telemetry", str(path), "--manifests", str(folder))
    assert result.code == 1
    commands = [line.split()[1:] for line in result.out.splitlines() if line.startswith("matrixgen move ")]
    assert ["move", "gpt2", "--tier", "2"] in commands
    for words in commands:
        assert run(*words, "--manifests", str(folder)).code == 0
    again = run("review", "--telemetry", str(path), "--manifests", str(folder))
    assert again.code == 0
    assert "MG060" not in again.out
    assert "MG062" not in again.out


@pytest.mark.parametrize(
    "text",
    [
        '{"mamba": 3, "Kimi_Linear": 4}',
        '[{"family": "mamba", "requests": 3}, {"arch": "kimi-linear", "count": 4}]',
        "family,requests\nmamba,3\nkimi_linear,4\n",
        "requests,Family,other\n1,mamba,x\n2,mamba,y\n4,kimi-linear,z\n",
    ],
)
def test_formats(text: str) -> None:
    """CSV and JSON say the same; rows of one name add up."""
    assert read_telemetry("t", text) == {"mamba": 3, "kimi-linear": 4}


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", "[1]", "{", "family\nx\n", "a,b\n1,2\n", "family,requests\nx,-1\n", "family,requests\nx,many\n",
     '{"x": true}', '{"x": 1.5e400}', '{"x": NaN}', '{"x": 0}', '{"": 1}', '{"a\\u001b": 1}', '{"x": [1]}', '{"x": 1e30}',
     "[" * 10_000, 'family,requests\n"x', '{"a": 1, "a": 2}', '{"x": null}'],
)  # fmt: skip
def test_bad_telemetry_is_refused(text: str) -> None:
    """What is no telemetry never becomes "nobody serves this"."""
    with pytest.raises(InvalidValue, match="t"):
        read_telemetry("t", text)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=60), st.dictionaries(st.text(max_size=5), st.integers()).map(json.dumps)))
def test_any_text_is_numbers_or_a_message(text: str) -> None:
    """No text gives anything else than requests or InvalidValue."""
    try:
        requests = read_telemetry("t", text)
    except InvalidValue:
        return
    assert sum(requests.values()) > 0
    assert all(name.isprintable() and count >= 0 for name, count in requests.items())
