"""From the build to the gate: the record of what was built, by which the gate traces what the legs ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from matrixgen.planfile import write_plan
from tests.agent.gate.kit import PLAN, complete, write_all
from tests.agent.gate.test_commands import LISTS, run_environment, write_builds
from tests.workflows.test_scripts import BASH, module
from tests.workflows.walker import ROOT, read

RECORD = {"schema_version": 1, "key": "k", "members": [{"path": "lib/libllama.so", "sha256": "0" * 64}]}


def step(script: str, folder: Path, **environment: str) -> dict[str, str]:
    """Run the script of an action with the environment of the test's own Python; its outputs, and `code`."""
    bin_folder = folder / "skippy-ci" / "bin"
    bin_folder.mkdir(parents=True, exist_ok=True)
    if not (bin_folder / "python").exists():
        (bin_folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        (bin_folder / "python").chmod(0o755)
    output = folder / "output"
    output.write_text("", encoding="utf-8")
    variables = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_WORKSPACE": str(folder / "workspace"),
        "PLAN_DIGEST": PLAN.digest,
        **environment,
    }
    done = subprocess.run([BASH, str(ROOT / script)], env=variables, capture_output=True, text=True, check=False)
    lines = output.read_text(encoding="utf-8").splitlines()
    found = {line.partition("<<")[0]: lines[index + 1] for index, line in enumerate(lines) if "<<EOF_" in line}
    return {**found, "code": str(done.returncode), "log": done.stdout + done.stderr}


def build(folder: Path, script: str, engine: str) -> dict[str, str]:
    """Run the action `build` with a build script of the product."""
    (folder / "workspace").mkdir()
    (folder / "workspace" / "build.sh").write_text(script, encoding="utf-8")
    (folder / "skippy-plan").mkdir()
    write_plan(PLAN, folder / "skippy-plan" / "plan.json")
    variables = {"SCRIPT": "build.sh", "ENGINE": engine, "BACKEND": "cpu", "PATCHES": "", "ARTIFACT": "build-cpu"}
    return step("actions/build/build.sh", folder, BUILD_KEY="build-cpu~", **variables)


def test_the_record_of_the_libraries_is_taken_out_of_the_build(tmp_path: Path) -> None:
    """Of an archive of `skippy-agent build` the record is uploaded beside it."""
    (tmp_path / "build.json").write_text(json.dumps(RECORD), encoding="utf-8")
    with tarfile.open(tmp_path / "llama.tar", "w") as archive:
        archive.add(tmp_path / "build.json", arcname="build.json")
    done = build(tmp_path, f'cp "{tmp_path}/llama.tar" "$SKIPPY_BUILD_OUT"\n', "pin")
    assert (done["code"], done["record"]) == ("0", "true"), done["log"]
    assert json.loads((tmp_path / "skippy-build" / "record" / "build.json").read_text(encoding="utf-8")) == RECORD


def test_a_build_of_another_form_is_recorded_by_its_files(tmp_path: Path) -> None:
    """What another builder left is listed file by file, under the key that was asked for."""
    done = build(tmp_path, 'echo library >"$SKIPPY_BUILD_OUT/libllama.so"\n', "pin")
    assert (done["code"], done["record"]) == ("0", "true"), done["log"]
    listed = json.loads((tmp_path / "skippy-build" / "record" / "contents.json").read_text(encoding="utf-8"))
    assert (listed["key"], [file["path"] for file in listed["files"]]) == ("build-cpu~", ["libllama.so"])


def test_the_binding_alone_has_no_record(tmp_path: Path) -> None:
    """Its libraries are unpacked from a wheel, so that nothing could be compared; nothing is said of them."""
    done = build(tmp_path, 'echo wheel >"$SKIPPY_BUILD_OUT/wheel"\n', "binding")
    assert done["code"] == "0", done["log"]
    assert "record" not in done


def test_an_archive_without_a_record_ends_the_build(tmp_path: Path) -> None:
    """A llama.tar that `skippy-agent build` did not make is no build."""
    done = build(tmp_path, 'tar -cf "$SKIPPY_BUILD_OUT/llama.tar" -C / dev/null\n', "pin")
    assert done["code"] != "0"
    assert "record" not in done


def test_of_several_attempts_the_newest_record_counts(tmp_path: Path) -> None:
    """Each build's record of its highest attempt, also where a single artifact came without its folder; none makes no folder."""
    main = module("gate/records.py").main
    for name in ("skippy-record.cpu.1", "skippy-record.cpu.10", "skippy-record.cpu.9", "skippy-record.cuda.2"):
        (tmp_path / "all" / name).mkdir(parents=True)
        (tmp_path / "all" / name / "build.json").write_text(name, encoding="utf-8")
    assert main(str(tmp_path / "all"), str(tmp_path / "some")) == ""
    taken = {path.read_text(encoding="utf-8") for path in (tmp_path / "some").rglob("build.json")}
    assert taken == {"skippy-record.cpu.10", "skippy-record.cuda.2"}
    assert main(str(tmp_path / "all" / "skippy-record.cpu.9"), str(tmp_path / "one")) == ""
    assert [path.read_text(encoding="utf-8") for path in (tmp_path / "one").rglob("build.json")] == [
        "skippy-record.cpu.9"
    ]
    assert main(str(tmp_path / "nowhere"), str(tmp_path / "none")) == ""
    assert not (tmp_path / "none").exists()
    (tmp_path / "all" / "skippy-record.cpu.x").mkdir()
    assert main(str(tmp_path / "all"), str(tmp_path / "bad")).startswith("the records of the builds cannot be used")


@pytest.mark.parametrize(
    ("records", "state", "checked"), [("right", "green", True), ("wrong", "red", True), ("none", "green", False)]
)
def test_the_record_of_the_build_reaches_the_gate(tmp_path: Path, records: str, state: str, checked: bool) -> None:
    """[B13] Libraries of the recorded build are green, others red; without a record the verdict says that nobody looked."""
    (tmp_path / "skippy-plan").mkdir()
    write_plan(PLAN, tmp_path / "skippy-plan" / "plan.json")
    write_all(complete(), tmp_path / "skippy-all-receipts")
    if records != "none":
        wrong = {} if records == "right" else {LISTS["build.json"]: [{"path": "x", "sha256": "0" * 64}]}
        write_builds(tmp_path / "made", "build.json", **wrong)
        for path in (tmp_path / "made").iterdir():
            target = tmp_path / "skippy-all-records" / f"skippy-record.{path.name}.1"
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
    environment = run_environment(tmp_path) | {"NAME": "certify", "REQUIRE_SIGNATURE": "false"}
    done = step("actions/gate/gate.sh", tmp_path, **environment)
    assert done["verdict"] == state, done["log"]
    verdict = json.loads((tmp_path / "skippy-verdict" / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["context"]["builds_checked"] is checked
    assert ("wrong_build" in verdict["causes"]) is (records == "wrong")


def test_the_canary_moves_no_pin_without_traced_libraries() -> None:
    """The step that publishes demands a verdict for which the libraries were looked up."""
    (step_of_publish,) = [
        found["run"]
        for where, found in read(ROOT / ".github" / "workflows" / "llama-upstream-canary.yml").steps()
        if where.startswith("job publish") and "run" in found
    ]
    assert "--require-builds" in step_of_publish
