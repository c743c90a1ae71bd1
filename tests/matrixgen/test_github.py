"""What GitHub makes of the outputs: its own expression parser, and a workflow that really runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.jobs import jobs_of
from matrixgen.manifest import Manifest
from matrixgen.matrix import github_outputs
from matrixgen.plan import build_plan
from tests.matrixgen.kit import ROOT, many

PARSER = "@actions/expressions@0.3.61"
ACT = Path(sys.executable).with_name("act")
Evaluate = Callable[[dict[str, Any], list[str]], list[dict[str, Any]]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    """Evaluate expressions with GitHub's parser; skipped where node or its packages cannot be had."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("no node on this machine")
    folder = tmp_path_factory.mktemp("parser")
    words = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", PARSER]
    if subprocess.run(words, capture_output=True, check=False, timeout=300).returncode:
        pytest.skip(f"npm cannot install {PARSER}")
    script = shutil.copy(Path(__file__).with_name("evaluate.mjs"), folder)

    def call(contexts: dict[str, Any], expressions: list[str]) -> list[dict[str, Any]]:
        text = json.dumps({"contexts": contexts, "expressions": expressions})
        done = subprocess.run([node, str(script)], input=text, capture_output=True, text=True, check=True, timeout=120)
        results: list[dict[str, Any]] = json.loads(done.stdout)
        return results

    return call


def plan_job(outputs: dict[str, str]) -> dict[str, Any]:
    """The contexts of a job that needs the plan job."""
    return {"needs": {"plan": {"outputs": outputs, "result": "success"}}}


def test_githubs_parser_reads_every_matrix(evaluate: Evaluate, live: Manifest) -> None:
    """For each event and tier, `fromJSON` of each output is the value that was meant, and has_legs is a plain word."""
    tried = 0
    for event, tiers in live.batteries.events.items():
        for tier in tiers:
            for minutes in (0, 30):
                plan = build_plan(live, event=event, tiers=[tier])
                jobs = jobs_of(plan.legs, pack_minutes=minutes)
                outputs = github_outputs(plan, jobs)
                matrix, builds, has_legs, count, digest = evaluate(
                    plan_job(outputs),
                    [
                        "fromJSON(needs.plan.outputs.matrix)",
                        "fromJSON(needs.plan.outputs.builds)",
                        "needs.plan.outputs.has_legs == 'true'",
                        "fromJSON(needs.plan.outputs.count)",
                        "needs.plan.outputs.plan_digest",
                    ],
                )
                assert matrix["value"] == json.loads(outputs["matrix"])
                assert builds["value"] == json.loads(outputs["builds"])
                assert has_legs["value"] is True
                assert count["value"] == len(plan.legs)
                assert digest["value"] == plan.digest
                tried += 1
    assert tried == 30


def test_githubs_parser_reads_a_cell(evaluate: Evaluate, live: Manifest) -> None:
    """Every field of a cell is what a workflow expects of it: labels as a list, minutes as a number, flags as booleans."""
    outputs = github_outputs(build_plan(live, event="release"))
    cell = json.loads(outputs["matrix"])["include"][0]
    expressions = [f"matrix.{name}" for name in cell] + ["join(matrix.runs-on, ' ')", "!matrix.save_cache"]
    results = evaluate({"matrix": cell}, expressions)
    assert [result["value"] for result in results] == [*cell.values(), " ".join(cell["runs-on"]), True]


def test_githubs_parser_hands_chunks_on(evaluate: Evaluate, fixed: Manifest) -> None:
    """`toJSON(matrix.matrix)` of a chunk is what the called workflow reads with `fromJSON(inputs.matrix)`."""
    outputs = github_outputs(many(fixed, 300), chunked=True)
    (chunks,) = evaluate(plan_job(outputs), ["fromJSON(needs.plan.outputs.chunks)"])
    meant = json.loads(outputs["chunks"])
    assert chunks["value"] == meant
    handed = [evaluate({"matrix": chunk}, ["toJSON(matrix.matrix)"])[0]["value"] for chunk in meant["include"]]
    back = [evaluate({"inputs": {"matrix": text}}, ["fromJSON(inputs.matrix)"])[0]["value"] for text in handed]
    assert back == [chunk["matrix"] for chunk in meant["include"]]


def test_githubs_parser_refuses_what_is_no_json(evaluate: Evaluate) -> None:
    """The comparison above can fail: a broken output is an error there."""
    (result,) = evaluate(plan_job({"matrix": '{"include":['}), ["fromJSON(needs.plan.outputs.matrix)"])
    assert "error" in result


WORKFLOW = """
on: push
jobs:
  plan:
    runs-on: ubuntu-24.04
    outputs:
      matrix: ${{ steps.plan.outputs.matrix }}
      chunks: ${{ steps.chunks.outputs.chunks }}
      has_legs: ${{ steps.plan.outputs.has_legs }}
      count: ${{ steps.plan.outputs.count }}
    steps:
      - id: plan
        run: '"$PYTHON" -m matrixgen emit --event pull-request --tier 1 --pack 2 --plan "$OUT/plan.json"'
      - id: chunks
        run: '"$PYTHON" -m matrixgen emit --event pull-request --tier 3 --chunked'
  legs:
    needs: plan
    if: needs.plan.outputs.has_legs == 'true'
    name: ${{ matrix.name }}
    runs-on: ${{ matrix.runs-on }}
    timeout-minutes: ${{ matrix.timeout_minutes }}
    strategy:
      fail-fast: false
      matrix: ${{ fromJSON(needs.plan.outputs.matrix) }}
    steps:
      - env:
          LEGS: ${{ matrix.legs }}
          SAVE: ${{ matrix.save_cache }}
        run: for leg in $LEGS; do echo "$SAVE" > "$OUT/$leg"; done
  chunks:
    needs: plan
    name: ${{ matrix.name }}
    strategy:
      matrix: ${{ fromJSON(needs.plan.outputs.chunks) }}
    uses: ./.github/workflows/chunk.yml
    with:
      matrix: ${{ toJSON(matrix.matrix) }}
"""
CALLED = """
on:
  workflow_call:
    inputs:
      matrix: {type: string, required: true}
jobs:
  legs:
    runs-on: ${{ matrix.runs-on }}
    strategy:
      matrix: ${{ fromJSON(inputs.matrix) }}
    steps:
      - env:
          LEGS: ${{ matrix.legs }}
        run: for leg in $LEGS; do echo tombstone > "$OUT/$leg"; done
"""


@pytest.mark.skipif(not ACT.exists(), reason="act is not installed")
def test_a_workflow_runs(tmp_path: Path, live: Manifest) -> None:
    """Under act, the plan job's outputs start a job for each cell, packed and chunked, and every leg runs exactly once."""
    repository, out = tmp_path / "repository", tmp_path / "out"
    workflows = repository / ".github" / "workflows"
    workflows.mkdir(parents=True)
    out.mkdir()
    (workflows / "test.yml").write_text(WORKFLOW, encoding="utf-8")
    (workflows / "chunk.yml").write_text(CALLED, encoding="utf-8")
    shutil.copytree(ROOT / "manifests", repository / "manifests")
    for words in (
        ["init", "-q", "-b", "x"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True)
    command = [
        str(ACT),
        "push",
        "-P",
        "ubuntu-24.04=-self-hosted",
        "-W",
        ".github/workflows/test.yml",
        "--no-cache-server",
    ]
    command += ["--env", f"PYTHON={sys.executable}", "--env", f"OUT={out}", "--env", f"PYTHONPATH={ROOT}"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    plan = build_plan(live, event="pull-request", tiers=[1])
    stones = build_plan(live, event="pull-request", tiers=[3])
    ran = {path.name: path.read_text(encoding="utf-8").strip() for path in out.iterdir() if path.name != "plan.json"}
    assert {leg for leg, said in ran.items() if said == "false"} == {leg.id for leg in plan.legs}
    assert {leg for leg, said in ran.items() if said == "tombstone"} == {leg.id for leg in stones.legs}
    assert json.loads((out / "plan.json").read_text(encoding="utf-8"))["digest"] == plan.digest
