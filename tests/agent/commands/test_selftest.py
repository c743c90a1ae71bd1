"""`skippy-agent selftest`."""

from __future__ import annotations

import json

from tests.agent.conftest import Cli


def test_one_fault_on_one_family(cli: Cli) -> None:
    """The fault is caught; the rows say by which lanes, and nothing else is on standard output."""
    done = cli("selftest", "qwen3-dense", "--fault", "other-architecture", "--json", "--jobs", "1")
    assert done.code == 0, done.err
    (row,) = json.loads(done.out)
    assert row == {
        "family": "qwen3-dense",
        "fault": "other-architecture",
        "applies": True,
        "caught": ["other-architecture/inspect"],
        "missed": [],
    }


def test_faults_are_shown_as_a_table(cli: Cli) -> None:
    """A row a fault, with what was caught and what does not apply."""
    arguments = ["--fault", "first-layer-only", "--fault", "other-architecture", "--fault", "recurrent-state-dropped"]
    done = cli("selftest", "qwen3-dense", "lfm2", *arguments)
    assert done.code == 0, done.err
    for words in ("first-layer-only", "other-architecture", "recurrent-state-dropped", "missed 0", "1 lfm2"):
        assert words in done.out


def test_faults_that_show_nowhere_are_not_green(cli: Cli) -> None:
    """Nothing seeded is nothing proved."""
    done = cli("selftest", "qwen3-dense", "--fault", "recurrent-state-dropped")
    assert done.code == 1


def test_an_unknown_fault_lists_the_known_ones(cli: Cli, children: list[list[str]]) -> None:
    """Before anything runs."""
    done = cli("selftest", "qwen3-dense", "--fault", "gremlin")
    assert done.code == 2
    assert "'gremlin'" in done.err
    assert "kv-byte-flipped" in done.err
    assert children == []


def test_an_unknown_family_names_the_nearest(cli: Cli) -> None:
    """As everywhere."""
    done = cli("selftest", "qwen3-dens")
    assert done.code == 2
    assert "qwen3-dense" in done.err
