"""Run workflows for real, without Docker: act, with stand-ins for the third-party actions alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.workflows.walker import ROOT, WORKFLOWS

STUBS = ROOT / "tests" / "workflows" / "stubs"
COPIED = (".github", ".ci", "actions", "agent", "matrixgen", "manifests", "pyproject.toml")
_TIMEOUT_SECONDS = 1500
WORKFLOW_TEXT = {path.name: path.read_text(encoding="utf-8") for path in WORKFLOWS}
ACT = Path(sys.executable).with_name("act")
TOKEN = "t0ken"  # what the stand-in for GitHub's API takes


def calling(required: str, **inputs: str) -> str:
    """A workflow that calls the battery as another workflow would, and ends in the required check called `required`."""
    given = "".join(f"      {name}: {json.dumps(value)}\n" for name, value in inputs.items())
    text = (
        "name: caller\non: workflow_dispatch\npermissions: {}\ndefaults:\n  run:\n    shell: bash\njobs:\n  certify:\n"
        f"    permissions:\n      contents: read\n    uses: ./.github/workflows/family-certify.yml\n    with:\n{given}"
    )
    return text + required_job(required, needs="certify", verdict="certify")


def required_job(name: str, *, needs: str, verdict: str) -> str:
    """The required check as ci.yml has it, for other jobs."""
    ci = WORKFLOW_TEXT["ci.yml"]
    job = ci[ci.index("\n  verdict:\n") :].replace("[checks, certify]", f"[{needs}]").replace("ci verdict", name)
    return job.replace("needs.certify.outputs", f"needs.{verdict}.outputs")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run came to.

    Attributes:
        code: exit code of act; 0 if every job succeeded.
        jobs: job name -> ``success`` or ``failure``, of jobs that ran.
        log: everything that was printed.
        artifacts: folder of the uploaded artifacts.
    """

    code: int
    jobs: dict[str, str]
    log: str
    artifacts: Path

    @property
    def uploaded(self) -> set[str]:
        """Names of the artifacts."""
        return {path.name for path in self.artifacts.iterdir()}

    def verdict(self, name: str = "certify") -> dict[str, object]:
        """The uploaded verdict."""
        path = self.artifacts / f"skippy-verdict.{name}.1" / "verdict.json"
        found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
        return found


def make_product(folder: Path, caller: str, *, real_setup: bool = False) -> Path:
    """A git repository with this project's workflows and actions, and a workflow that calls them."""
    product = folder / "product"
    product.mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, product / name, ignore=ignore)
        else:
            shutil.copy(source, product / name)
    (product / ".github" / "workflows" / "caller.yml").write_text(caller, encoding="utf-8")
    (product / "build.sh").write_text('echo built >"$SKIPPY_BUILD_OUT/marker"\n', encoding="utf-8")
    if not real_setup:
        shutil.copy(STUBS / "setup" / "action.yml", product / "actions" / "setup" / "action.yml")
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.test"]
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        [*identity, "commit", "-q", "-m", "product"],
        ["remote", "add", "origin", "https://github.com/acme/product.git"],
    ):
        subprocess.run(["git", *command], cwd=product, check=True, capture_output=True)
    return product


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """What starts a run.

    Attributes:
        workflow: file name of the workflow.
        event: name of the event.
        payload: the event as GitHub sends it.
        variables: those of the repository.
    """

    workflow: str = "caller.yml"
    event: str = "workflow_dispatch"
    payload: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


CALLER = Trigger()


def run_act(product: Path, folder: Path, trigger: Trigger = CALLER, /, **environment: str) -> Run:
    """Run a workflow of `product` on this machine, also the jobs for machines of our own. `environment` reaches every step."""
    artifacts = folder / "artifacts"
    artifacts.mkdir(exist_ok=True)
    (folder / "event.json").write_text(json.dumps(trigger.payload), encoding="utf-8")
    steps = {
        "STUB_REPOSITORY": str(product),
        "STUB_ARTIFACTS": str(artifacts),
        "STUB_PYTHON": sys.executable,
        "STUB_AGENT": str(STUBS / "setup" / "agent_with_faults.py"),
        "SKIPPY_CACHE": os.environ.get("SKIPPY_CACHE", str(Path.home() / ".cache" / "skippy-ci")),
        **environment,
    }
    table = json.loads((ROOT / ".github" / "pinned-actions.json").read_text(encoding="utf-8"))
    command = [str(ACT), trigger.event, "--json", "-W", f".github/workflows/{trigger.workflow}", "--no-cache-server"]
    command += ["-e", str(folder / "event.json"), "-s", f"GITHUB_TOKEN={TOKEN}"]
    for machine in ("ubuntu-24.04", "self-hosted"):
        command += ["-P", f"{machine}=-self-hosted"]
    for name, entry in table.items():
        command += ["--local-repository", f"{name}@{entry['sha']}={STUBS / name.partition('/')[2]}"]
    for name, value in trigger.variables.items():
        command += ["--var", f"{name}={value}"]
    for name, value in steps.items():
        command += ["--env", f"{name}={value}"]
    # act keeps the jobs' workspaces below its cache folder; a folder of the test is removed with it
    # act keeps what it fetches apart, but pip finds its wheels: llama.cpp is compiled once on a machine, not once a test
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pip_cache = os.environ.get("PIP_CACHE_DIR") or str(caches / "pip")
    home = {**os.environ, "XDG_CACHE_HOME": str(folder / "act"), "PIP_CACHE_DIR": pip_cache}
    home.pop("CI", None)
    done = subprocess.run(
        command, cwd=product, env=home, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    return Run(code=done.returncode, jobs=_results(done.stdout), log=done.stdout + done.stderr, artifacts=artifacts)


def _results(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        if "jobResult" in entry:
            found[str(entry.get("job", "")).strip()] = entry["jobResult"]
    return found
