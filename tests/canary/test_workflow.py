"""The canary's workflow under act: the libraries of the pin, weights from S3, the pin commit through GitHub's API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.gate.producers import GITHUB_ACTIONS_APP
from tests.agent.gate.github_server import REPOSITORY
from tests.canary.night import Night
from tests.canary.product import BUILD_SCRIPT, PIN_FILE
from tests.canary.upstream import Upstream
from tests.workflows.acting import Run, Trigger, run_act
from tests.workflows.flatten import flatten_in
from tests.workflows.test_act import result

pytestmark = pytest.mark.slow

WORKFLOW = "llama-upstream-canary.yml"
Start = Callable[..., tuple[Night, Run]]


@pytest.fixture
def start(night: Callable[[str], Night], tmp_path: Path) -> Start:
    """Run the workflow by hand, on main, with the build of upstream's head in the product's store."""

    def begin(*, flat: bool = False) -> tuple[Night, Run]:
        run = night("1")  # the number that act gives every run
        if flat:
            flatten_in(run.product.checkout, WORKFLOW)
        run.make_plan()
        run.build()
        # GitHub makes the check of a job, and act does not; who made it is compared all the same
        check = {
            "id": 10,
            "name": "canary verdict",
            "head_sha": run.product.base,
            "status": "completed",
            "conclusion": "success",
            "app": {"id": GITHUB_ACTIONS_APP},
            "details_url": f"https://github.com/{REPOSITORY}/actions/runs/1/job/10",
            "url": run.api.at("/check-runs/10"),
        }
        run.api.checks = [check]
        run.api.runs["1"] = {"id": 1, "url": run.api.at("/actions/runs/1"), "path": f".github/workflows/{WORKFLOW}"}
        done = run_act(
            run.product.checkout,
            tmp_path,
            Trigger(
                workflow=WORKFLOW,
                payload={"inputs": {"llama_commit": "", "dry_run": "false"}},
                variables={
                    "LLAMA_UPSTREAM_URL": str(run.upstream.folder),
                    "SKIPPY_UPSTREAM": "third_party/llama.cpp",
                    "SKIPPY_BUILD_SCRIPT": BUILD_SCRIPT,
                    "SKIPPY_SOURCES": run.source,
                },
            ),
            GITHUB_API_URL=run.api.url,
            PRODUCT_S3=run.s3,
            AWS_ACCESS_KEY_ID="key",
            AWS_SECRET_ACCESS_KEY="secret",
            AWS_EC2_METADATA_DISABLED="true",
        )
        return run, done

    return begin


def test_the_workflow_moves_the_pin(start: Start) -> None:
    """Every job runs and succeeds; the one commit changes the pin file alone, on exactly the tested commit."""
    night, done = start()
    assert done.code == 0, done.log[-6000:]
    for name in ("resolve upstream", "may publish", "canary verdict", "attest", "move the pin"):
        assert result(done, name) == "success", name
    verdict = done.verdict("canary")
    assert (verdict["state"], verdict["causes"]) == ("green", [])
    assert verdict["context"]["builds_checked"] is True  # type: ignore[index]
    product = night.product
    assert product.pin == night.upstream.head
    assert product.git("rev-parse", "main^") == product.base
    assert product.changed(product.base, "main") == [PIN_FILE]
    publication = json.loads((done.artifacts / "skippy-publication.1" / "publication.json").read_text(encoding="utf-8"))
    assert publication["state"] == "published"
    assert [check["conclusion"] for check in night.api.checks if check["name"] == "llama pin"] == ["success"]


def test_the_workflow_leaves_the_pin_where_restore_is_broken(start: Start, upstream: Upstream) -> None:
    """Legs with recurrent state fail, the verdict is red and kept, and nothing is asked of GitHub that writes."""
    upstream.break_restore()
    night, done = start(flat=True)
    assert done.code != 0
    assert (result(done, "may publish"), result(done, "canary verdict")) == ("success", "failure")
    verdict = done.verdict("canary")
    assert (verdict["state"], verdict["causes"]) == ("red", ["leg_failed", "job_failed"])
    assert result(done, "move the pin") is None
    assert night.product.tip() == night.product.base
    assert not [request for request in night.api.asked if request.startswith("PATCH")]
    receipts = {path.parent.name: json.loads(path.read_text()) for path in done.artifacts.rglob("receipt.json")}
    assert {leg: receipt["status"] for leg, receipt in receipts.items()} == {
        "arcee@cpu": "pass",
        "lfm2@cpu": "fail",
        "qwen3-dense@cpu": "pass",
        "rwkv7@cpu": "fail",
    }
