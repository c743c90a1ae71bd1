"""GitHub's own parser and expression evaluator, from npm, on our workflows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.manifest import load_manifest
from matrixgen.matrix import github_outputs, leg_matrix
from matrixgen.plan import Plan, build_plan
from tests.workflows.rules import PLANNED_RUNNER
from tests.workflows.walker import ROOT, WORKFLOWS, read

pytestmark = pytest.mark.slow

VERSION = "0.3.61"
PACKAGES = [f"@actions/{name}@{VERSION}" for name in ("workflow-parser", "expressions")]
# the packages import JSON without an import attribute, which node wants
HOOKS = """\
export async function load(url, context, next) {
  return next(url, url.endsWith(".json") ? { ...context, importAttributes: { type: "json" } } : context);
}
"""
REGISTER = 'import { register } from "node:module";\nregister("./hooks.mjs", import.meta.url);\n'

Parser = Callable[..., Any]


@pytest.fixture(scope="session")
def github(tmp_path_factory: pytest.TempPathFactory) -> Parser:
    """Call GitHub's parser; the packages are kept in the user's cache, so that they are installed once."""
    if shutil.which("npm") is None and not os.environ.get("CI"):
        pytest.skip("npm is not installed here")
    cache = Path(os.environ.get("SKIPPY_CACHE", Path.home() / ".cache" / "skippy-ci"))
    folder = cache / f"github-parser-{VERSION}"
    if not (folder / "node_modules" / "@actions" / "workflow-parser").is_dir():
        part = tmp_path_factory.mktemp("npm")
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(part)]
        subprocess.run([*command, *PACKAGES], check=True, timeout=300)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(part, folder, dirs_exist_ok=True)
    work = tmp_path_factory.mktemp("parser")
    (work / "node_modules").symlink_to(folder / "node_modules")
    (work / "hooks.mjs").write_text(HOOKS, encoding="utf-8")
    (work / "register.mjs").write_text(REGISTER, encoding="utf-8")
    shutil.copy(ROOT / "tests" / "workflows" / "github_parser.mjs", work)

    def call(*arguments: str, given: object = None) -> Any:
        command = ["node", "--no-warnings", "--import", "./register.mjs", "github_parser.mjs", *arguments]
        text = None if given is None else json.dumps(given)
        done = subprocess.run(command, cwd=work, input=text, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    return call


def evaluate(parser: Parser, expression: str, /, **context: object) -> Any:
    """The value that GitHub gives an expression."""
    return parser("--evaluate", given={"expression": expression, "context": context})


def test_github_accepts_every_workflow(github: Parser) -> None:
    """GitHub's parser finds no error, and sees the jobs that we see."""
    found = github(*map(str, WORKFLOWS))
    assert {name: entry["errors"] for name, entry in found.items()} == {path.name: [] for path in WORKFLOWS}
    for path in WORKFLOWS:
        assert found[path.name]["jobs"] == list(read(path).jobs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("timeout-minutes: 90", "timeout-minuts: 90"),
        ("needs: [checks, certify]", "needs: [checks, certified]"),
        ("${{ toJSON(needs) }}", "${{ toYAML(needs) }}"),
        ("  pull_request:\n", "  pul_request:\n"),
    ],
)
def test_github_refuses_what_is_wrong(github: Parser, old: str, new: str, tmp_path: Path) -> None:
    """A wrong key, a missing job, an unknown function and an unknown event are errors, so an empty list means something."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "broken.yml").write_text(text.replace(old, new), encoding="utf-8")
    assert github(str(tmp_path / "broken.yml"))["broken.yml"]["errors"] != []


def job(workflow: str, name: str) -> Any:
    """A job of one of our workflows."""
    return read(ROOT / ".github" / "workflows" / workflow).jobs[name]


def inner(expression: str) -> str:
    """An expression without its braces."""
    return expression.removeprefix("${{").removesuffix("}}").strip()


def chunks_seen(parser: Parser, plan: Plan) -> dict[str, Any]:
    """What GitHub makes of the plan's chunks on both levels: name of a called workflow -> matrix in it."""
    called, chunk = job("family-certify.yml", "certify"), job("family-certify-chunk.yml", "certify")
    outputs = github_outputs(plan, chunked=True)
    seen = {}
    for entry in evaluate(parser, inner(called["strategy"]["matrix"]), needs={"plan": {"outputs": outputs}})["include"]:
        name = evaluate(parser, inner(called["name"]), matrix=entry)
        given = evaluate(parser, inner(called["with"]["matrix"]), matrix=entry)
        seen[name] = evaluate(parser, inner(chunk["strategy"]["matrix"]), inputs={"matrix": given})
    return seen


@pytest.mark.parametrize("event", ["llama-bump", "nightly", "patch-edit", "pull-request", "radix-cache", "release"])
def test_github_reads_the_matrix_that_was_meant(github: Parser, event: str) -> None:
    """What `strategy.matrix` says, on both levels, evaluates to the plan's legs, entry by entry."""
    plan = build_plan(load_manifest(ROOT / "manifests"), event=event)
    assert chunks_seen(github, plan) == {"chunk-001": leg_matrix(plan)}
    assert len(plan.legs) > 0


def test_more_legs_than_a_matrix_holds(github: Parser) -> None:
    """Every leg of a plan of 600 is in exactly one of three matrices, none of which is larger than GitHub takes."""
    manifest = load_manifest(ROOT / "manifests")
    base = manifest.family("mamba")
    rows = tuple(base._replace(family=f"family-{number:03}") for number in range(600))
    plan = build_plan(manifest._replace(families=rows), event="pull-request")
    seen = chunks_seen(github, plan)
    assert [len(matrix["include"]) for matrix in seen.values()] == [256, 256, 88]
    assert [entry["legs"] for matrix in seen.values() for entry in matrix["include"]] == [leg.id for leg in plan.legs]


@pytest.mark.parametrize("labels", [["self-hosted", "gpu-nvidia"], ["ubuntu-24.04"]])
def test_a_pull_request_runs_on_hosted_runners_whatever_the_matrix_says(github: Parser, labels: list[str]) -> None:
    """The label of a leg is the plan's, except for a pull request."""
    expression = PLANNED_RUNNER.removeprefix("${{").removesuffix("}}").strip()
    matrix = {"runs-on": labels}
    assert evaluate(github, expression, github={"event_name": "pull_request"}, matrix=matrix) == "ubuntu-24.04"
    assert evaluate(github, expression, github={"event_name": "schedule"}, matrix=matrix) == labels


def test_a_pull_request_gets_no_secret(github: Parser) -> None:
    """The secret is an empty word for a pull request, and the token otherwise."""
    canary = next(path for path in WORKFLOWS if path.name == "llama-upstream-canary.yml")
    text = read(canary).jobs["certify"]["secrets"]["HF_TOKEN"].removeprefix("${{").removesuffix("}}").strip()
    for event, value in (("pull_request", ""), ("schedule", "token"), ("push", "token")):
        assert evaluate(github, text, github={"event_name": event}, secrets={"HF_TOKEN": "token"}) == value


GREEN: dict[str, str] = {
    "verdict": "success",
    "attest": "success",
    "word": "green",
    "publish": "true",
    "ref": "refs/heads/main",
    "event": "schedule",
}


@pytest.mark.parametrize(
    ("change", "published"),
    [
        ({}, True),
        ({"event": "workflow_dispatch"}, True),
        *(({"verdict": result}, False) for result in ("failure", "cancelled", "skipped", "")),
        *(({"attest": result}, False) for result in ("failure", "cancelled", "skipped", "")),
        *(({"word": word}, False) for word in ("red", "infra", "")),
        *(({"publish": word}, False) for word in ("false", "")),
        ({"ref": "refs/heads/other"}, False),
        ({"ref": "refs/pull/7/merge"}, False),
        ({"event": "pull_request"}, False),
    ],
    ids=str,
)
def test_the_pin_moves_on_green_alone(github: Parser, change: dict[str, str], published: bool) -> None:
    """The job that may write to the repository starts only if everything before it said yes, on main, and for no pull request."""
    canary = next(path for path in WORKFLOWS if path.name == "llama-upstream-canary.yml")
    facts = GREEN | change
    needs = {
        "resolve": {"result": "success", "outputs": {"publish": facts["publish"]}},
        "certify": {"result": "success", "outputs": {"verdict": facts["word"]}},
        "verdict": {"result": facts["verdict"]},
        "attest": {"result": facts["attest"]},
    }
    condition = read(canary).jobs["publish"]["if"]
    context = {"event_name": facts["event"], "ref": facts["ref"]}
    assert evaluate(github, condition, needs=needs, github=context) is published
