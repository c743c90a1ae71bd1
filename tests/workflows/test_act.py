"""The canary's line under act: plan, matrix, real legs on real llama.cpp, gate, required check; and every way not to be green."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.acting import Run, calling, make_product, run_act
from tests.workflows.flatten import flattened

pytestmark = pytest.mark.slow

REQUIRED = "required check"
TWO = {
    "event": "pull-request",
    "families": "lfm2 rwkv7",
    "tiers": "1",
    "engine": "binding",
    "build_script": "build.sh",
}


def act(folder: Path, options: dict[str, str], **environment: str) -> Run:
    """Run the battery's jobs and the required check, with stand-ins."""
    return run_act(make_product(folder, flattened(calling(REQUIRED, **options))), folder, **environment)


def result(run: Run, name: str) -> str | None:
    """Result of the one job whose name holds `name`; None if it did not run."""
    found = {word for job, word in run.jobs.items() if name in job}
    assert len(found) < 2, run.jobs
    return next(iter(found), None)


def receipt(run: Run, leg: str) -> dict[str, Any]:
    """The uploaded receipt of a leg."""
    path = run.artifacts / f"skippy-receipt.certify.{leg}.1" / leg / "receipt.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def causes(run: Run) -> list[object]:
    """Causes of the verdict."""
    found = run.verdict()["causes"]
    assert isinstance(found, list)
    return found


def test_green(tmp_path: Path) -> None:
    """Two legs really certify, the verdict is green, the required check passes, and every artifact names its attempt."""
    run = run_act(make_product(tmp_path, calling(REQUIRED, **TWO)), tmp_path)
    assert run.code == 0, run.log[-4000:]
    assert result(run, REQUIRED) == "success"
    verdict = run.verdict()
    assert (verdict["state"], verdict["causes"]) == ("green", [])
    assert {"skippy-plan.certify.1", "skippy-verdict.certify.1"} <= run.uploaded
    for leg in ("lfm2@cpu", "rwkv7@cpu"):
        assert all(lane["status"] == "pass" and lane["comparisons"] > 0 for lane in receipt(run, leg)["lanes"])
    assert (run.artifacts / "skippy-verdict.certify.1" / "verdict.json.predicate.json").is_file()


def test_red_where_llama_is_broken(tmp_path: Path) -> None:
    """Recurrent state that gets lost makes its leg, the verdict and the required check red; both receipts are kept."""
    run = act(tmp_path, TWO, STUB_FAULT="lfm2@cpu recurrent-state-dropped cache-recurrent")
    assert run.code != 0
    assert result(run, REQUIRED) == "failure"
    assert run.verdict()["state"] == "red"
    assert "leg_failed" in causes(run)
    broken, whole = receipt(run, "lfm2@cpu"), receipt(run, "rwkv7@cpu")
    assert (broken["status"], whole["status"]) == ("fail", "pass")
    assert [lane["lane"] for lane in broken["lanes"] if lane["status"] != "pass"] == ["cache-recurrent"]


def test_red_where_a_leg_is_lost(tmp_path: Path) -> None:
    """A runner that goes away leaves no receipt, and the gate, which counts against the plan, misses it."""
    run = act(tmp_path, TWO, STUB_LOST="lfm2@cpu")
    assert run.code != 0
    assert result(run, REQUIRED) == "failure"
    assert run.verdict()["state"] == "infra"
    assert "leg_missing" in causes(run)


def test_red_where_the_build_fails(tmp_path: Path) -> None:
    """No build, no legs: the gate still reports, says that the build failed, and the required check is red."""
    run = act(tmp_path, TWO | {"build_script": "none.sh"})
    assert run.code != 0
    assert result(run, "lfm2") is None
    assert result(run, REQUIRED) == "failure"
    assert run.verdict()["state"] == "red"
    assert {"build_failed", "leg_missing", "job_skipped"} <= set(causes(run))


def test_red_where_nothing_is_selected(tmp_path: Path) -> None:
    """An empty selection is an error of the plan, not an empty green: nothing runs, and the required check is red."""
    run = act(tmp_path, TWO | {"tiers": "2"})
    assert run.code != 0
    assert result(run, "plan") == "failure"
    assert result(run, REQUIRED) == "failure"
    assert not any(name.startswith(("skippy-receipt", "skippy-verdict")) for name in run.uploaded)


def test_green_with_everything_real(tmp_path: Path) -> None:
    """The same with the real setup and build: requirements installed by hash, the binding's wheel made once, legs packed."""
    options = TWO | {"build_script": "", "pack_minutes": "15"}
    product = make_product(tmp_path, calling(REQUIRED, **options), real_setup=True)
    run = run_act(product, tmp_path)
    assert run.code == 0, run.log[-4000:]
    assert result(run, REQUIRED) == "success"
    assert run.verdict()["state"] == "green"
    packed = [name for name in run.uploaded if name.startswith("skippy-receipt.")]
    assert len(packed) == 1
    folders = [path.name for path in (run.artifacts / packed[0]).iterdir() if path.is_dir()]
    assert sorted(folders) == ["lfm2@cpu", "rwkv7@cpu"]


def test_red_without_the_libraries_of_the_pin(tmp_path: Path) -> None:
    """A build that should hold the pin's llama.cpp and cannot make it is red: no leg quietly tests another one."""
    run = act(tmp_path, TWO | {"build_script": "", "engine": "motor"})
    assert run.code != 0
    assert "engine is 'motor': use pin or binding" in run.log
    assert result(run, REQUIRED) == "failure"
    assert "build_failed" in causes(run)
