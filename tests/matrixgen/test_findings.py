"""Findings: one page each, and the same content for people, GitHub and code scanning."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from matrixgen.catalogue import CATALOGUE, index, page
from matrixgen.findings import Finding
from matrixgen.report_findings import MOST_ANNOTATIONS, sarif, workflow_commands

Run = Callable[..., Any]
Edit = Callable[[str, Callable[[Any], Any]], Path]
PAGES = Path(__file__).parents[2] / "docs" / "findings"
EVIL = "a%\r\n::error file=x::b,c:d"


def finding(number: int = 1, *, severity: str = "error", text: str = "wrong", line: int = 3) -> Finding:
    """A finding with this text."""
    return Finding(f"MG{number:03d}", severity, "families.json", "/families/0", line, text, "mend it")  # type: ignore[arg-type]


def test_pages_are_up_to_date(update_golden: bool) -> None:
    """docs/findings/ is what the catalogue says; `pytest --update-golden` writes it."""
    expected = {"index.md": index()} | {f"{id_}.md": page(id_) for id_ in CATALOGUE}
    if update_golden:
        PAGES.mkdir(exist_ok=True)
        for name, text in expected.items():
            (PAGES / name).write_text(text, encoding="utf-8")
    there = {path.name: path.read_text(encoding="utf-8") for path in PAGES.iterdir()}
    assert there == expected, "run pytest --update-golden and review the diff"


@pytest.mark.parametrize("id_", CATALOGUE)
def test_every_entry_is_whole(id_: str) -> None:
    """Title, reason and remedy are sentences, and the command exists."""
    entry = CATALOGUE[id_]
    assert re.fullmatch(r"MG\d{3}", id_)
    assert entry.title
    assert not entry.title.endswith(".")
    assert entry.why.endswith(".")
    assert entry.fix.endswith(".")
    from matrixgen.cli.group import COMMANDS

    assert entry.command in COMMANDS


def test_annotations_cannot_be_forged() -> None:
    """Text of a manifest becomes one command, whatever it holds."""
    text = workflow_commands([finding(text=EVIL)], "manifests/")
    assert text.count("\n") == 0
    assert text.startswith("::error file=manifests/families.json,line=3,title=MG001::")
    assert "%25%0D%0A" in text
    assert workflow_commands([finding()], "a,b:c/").startswith("::error file=a%2Cb%3Ac/families.json,")


@pytest.mark.parametrize("count", [1, 10, 11, 50])
def test_more_annotations_than_github_shows(count: int) -> None:
    """The last one that is shown says how many are not."""
    lines = workflow_commands([finding() for _ in range(count)], "").splitlines()
    assert len(lines) == min(count, MOST_ANNOTATIONS)
    if count > MOST_ANNOTATIONS:
        assert f"and {count - MOST_ANNOTATIONS + 1} more" in lines[-1]


def test_a_finding_without_a_line_points_to_the_first() -> None:
    """GitHub counts lines from one."""
    assert ",line=1," in workflow_commands([finding(line=0)], "")


SARIF_SHAPE = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
                            "properties": {"level": {"enum": ["error", "warning"]}},
                        },
                    }
                },
            },
        },
    },
}


def test_sarif_is_what_code_scanning_reads() -> None:
    """Each result points to its rule and place; the rules are those that were broken."""
    log = json.loads(sarif([finding(12), finding(30, severity="warning"), finding(12, line=0)], "manifests/"))
    assert not list(Draft202012Validator(SARIF_SHAPE).iter_errors(log))
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["MG012", "MG030"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "manifests/families.json"}, "region": {"startLine": 3}}
    assert "region" not in run["results"][2]["locations"][0]["physicalLocation"]


def test_all_formats_say_the_same(run: Run, edit: Edit) -> None:
    """`validate` finds the same in each format, with the same exit code."""
    root = edit("families", lambda data: data["families"][0].update(tier=7, shape="round"))
    plain, as_json, commands, log = (
        run("validate", "--manifests", str(root), "--format", name) for name in ("text", "json", "github", "sarif")
    )
    assert [result.code for result in (plain, as_json, commands, log)] == [1, 1, 1, 1]
    findings = json.loads(as_json.out)["findings"]
    assert len(findings) == 2
    assert plain.out.count("MG010") == commands.out.count("title=MG010") == 2
    assert [r["ruleId"] for r in json.loads(log.out)["runs"][0]["results"]] == ["MG010", "MG010"]


def test_a_good_manifest_in_every_format(run: Run) -> None:
    """Warnings do not change the exit code."""
    for name in ("text", "json", "github", "sarif"):
        assert run("validate", "--format", name).code == 0
