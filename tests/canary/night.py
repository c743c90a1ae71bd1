"""A night of the canary, by the commands that its jobs run: plan, build, upload, legs, gate, pin commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrixgen.plan import read_plan
from tests.agent.gate.github_server import REPOSITORY, Server
from tests.agent.store.test_s3 import connect
from tests.canary.builder import JOBS, Shared
from tests.canary.product import CanaryProduct
from tests.canary.upstream import Upstream, git

BUCKET, PREFIX = "models", "mirror"
_BIN = Path(sys.executable).parent


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, kw_only=True)
class Night:
    """One run of the canary: its folder, the repositories, the S3 server, the API server, and its number."""

    folder: Path
    upstream: Upstream
    product: CanaryProduct
    s3: str
    api: Server
    shared: Shared
    run_id: str

    @property
    def plan(self) -> Path:
        """The plan."""
        return self.folder / "plan.json"

    @property
    def verdict(self) -> dict[str, Any]:
        """The verdict."""
        found: dict[str, Any] = json.loads((self.folder / "verdict.json").read_text(encoding="utf-8"))
        return found

    def receipt(self, leg: str) -> dict[str, Any]:
        """The receipt of a leg."""
        found: dict[str, Any] = json.loads(
            (self.folder / "receipts" / leg / leg / "receipt.json").read_text(encoding="utf-8")
        )
        return found

    def run(self, command: str, *arguments: str | Path, **environment: str) -> Result:
        """A command in the checkout, with the variables that GitHub sets in a job of this run."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GITHUB_", "SKIPPY_", "GH_", "AWS_", "LLAMA_")) or name == "SKIPPY_CACHE"
        }
        job = {
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": self.run_id,
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SHA": git(self.product.checkout, "rev-parse", "HEAD"),
            "GITHUB_API_URL": self.api.url,
            "LLAMA_UPSTREAM_URL": str(self.upstream.folder),
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        done = subprocess.run(
            [str(_BIN / command), *map(str, arguments)],
            cwd=self.product.checkout,
            env={**clean, **job, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr + done.stdout
        return Result(code=done.returncode, out=done.stdout, err=done.stderr)

    def must(self, command: str, *arguments: str | Path, **environment: str) -> str:
        """The same for a command that has to succeed; what it printed."""
        done = self.run(command, *arguments, **environment)
        assert done.code == 0, f"{command} {arguments}: {done.err}{done.out}"
        return done.out

    # -- the jobs ------------------------------------------------------------------------------------------------------

    def preflight(self) -> None:
        """Before hours of work: the token may write."""
        self.must("skippy-agent", "publish", "--preflight", "--branch", "main", GITHUB_TOKEN="t0ken")

    def make_plan(self) -> None:
        """Plan the bump of upstream's head. The checkout keeps its pin; only what is planned has the candidate."""
        manifests = self.folder / "manifests"
        manifests.mkdir(parents=True)
        for path in (self.product.checkout / "manifests").glob("*.json"):
            (manifests / path.name).write_bytes(path.read_bytes())
        commit = git(self.folder, "ls-remote", "--exit-code", str(self.upstream.folder), "HEAD").split()[0]
        self.must("matrixgen", "pin", "--upstream", "third_party/llama.cpp", "--manifests", manifests)
        self.must("matrixgen", "pin", commit, "--manifests", manifests)
        self.must("matrixgen", "emit", "--event", "llama-bump", "--manifests", manifests, "--plan", self.plan)

    @property
    def source(self) -> str:
        """Where the weights and the builds come from."""
        return f"s3://{BUCKET}/{PREFIX}?endpoint={self.s3}&region=us-east-1"

    def build(self) -> None:
        """Build the planned llama.cpp with its patches, and upload the archive and the ticket by which it is found."""
        (wanted,) = read_plan(self.plan).builds

        def make(archive: Path, work: Path) -> None:
            self.must(
                "skippy-agent", "build", "--plan", self.plan, "--key", wanted.key, "--jobs", str(JOBS),
                "--patches", "third_party/llama.cpp/patches", "--work", work, "-o", archive,
            )  # fmt: skip

        archive = self.shared.build(wanted.artifact, make)
        for path in (archive.with_suffix(".json"), archive):
            connect(self.s3).upload_file(str(path), BUCKET, f"{PREFIX}/{path.name}")

    def certify(self) -> dict[str, int]:
        """Every leg in a process of its own, with a store of its own; leg -> exit code."""
        legs = [leg.id for leg in read_plan(self.plan).legs]
        with ThreadPoolExecutor(max_workers=JOBS) as pool:
            return dict(zip(legs, pool.map(self._leg, legs), strict=True))

    def _leg(self, leg: str) -> int:
        folder = self.folder / "jobs" / leg
        folder.mkdir(parents=True)
        done = self.run(
            "skippy-agent", "certify", "--plan", self.plan, "--leg", leg, "--build", "plan", "--threads", "1",
            "--store", folder / "store", "--source", self.source, "--receipts", self.folder / "receipts" / leg,
        )  # fmt: skip
        (folder / "log").write_text(done.out + done.err, encoding="utf-8")
        return done.code

    def gate(self, needs: Mapping[str, str]) -> Result:
        """Judge the receipts, with the libraries traced to the record of the build, and write the statements."""
        context = json.dumps({job: {"result": result, "outputs": {}} for job, result in needs.items()})
        verdict = self.folder / "verdict.json"
        done = self.run(
            "skippy-agent", "gate", "--plan", self.plan, "--receipts", self.folder / "receipts",
            "--builds", self._records(), "-o", verdict, SKIPPY_NEEDS=context,
        )  # fmt: skip
        receipts = sorted((self.folder / "receipts").rglob("receipt.json"))
        self.must("skippy-agent", "statement", *receipts, verdict)
        return done

    def _records(self) -> Path:
        """Folder with the record of the build in the store."""
        folder = self.folder / "records"
        (wanted,) = read_plan(self.plan).builds
        folder.mkdir()
        connect(self.s3).download_file(BUCKET, f"{PREFIX}/{wanted.artifact}.tar", str(folder / "llama.tar"))
        with tarfile.open(folder / "llama.tar") as archive:
            archive.extract("build.json", folder, filter="data")
        return folder

    def refuse(self) -> str:
        """Ask the build in the store for every dropped family, on the desk; what was printed."""
        archive = self.folder / "records" / "llama.tar"
        return self.must("skippy-agent", "refuse", "--build", archive, "--manifests", self.folder / "manifests")

    def verify(self) -> Result:
        """Check plan, receipts, statements and verdict offline."""
        return self.run(
            "skippy-agent", "verify", "--plan", self.plan, "--receipts", self.folder / "receipts",
            "--verdict", self.folder / "verdict.json", "--max-age", "1",
        )  # fmt: skip

    def publish(self, *where: str) -> Result:
        """Move the pin, through the API or, with `--git`, over git."""
        return self.run(
            "skippy-agent", "publish", "--plan", self.plan, "--verdict", self.folder / "verdict.json",
            "--receipts", self.folder / "receipts", "--layout", "upstream", "--require-builds",
            "--state", self.folder / "publication.json", *where,
            **({} if "--git" in where else {"GITHUB_TOKEN": "t0ken"}),
        )  # fmt: skip
