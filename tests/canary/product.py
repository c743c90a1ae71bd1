"""The product's repository: this project's files, a pin that is old, a patch queue, and four families whose weights are twins."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from matrixgen.manifest import load_manifest
from tests.agent.gate.product import OLD_PIN, Product
from tests.canary.upstream import git
from tests.workflows.acting import COPIED, STUBS
from tests.workflows.walker import ROOT

PIN_FILE = "third_party/llama.cpp/upstream.txt"
BUILD_SCRIPT = "scripts/take-build.sh"
DROPPED = "arcee"
# a family of each way to keep state; with their twins as weights they owe the battery of a bump in seconds
FAMILIES = {"qwen3-dense": "qwen3", "lfm2": "lfm2", "rwkv7": "rwkv7"}
PATCHES = Path(__file__).with_name("patches")
WEIGHTS_REPO, WEIGHTS_REVISION = "acme/twins", "c" * 40


class CanaryProduct(Product):
    """The bare repository, and a checkout of it as jobs have one."""

    def __init__(self, folder: Path, weights: dict[str, Path]) -> None:
        self.bare = folder / "product.git"
        self.checkout = folder / "checkout"
        _write_tree(self.checkout, weights)
        git(self.checkout, "init", "--quiet", "--initial-branch=main")
        git(self.checkout, "add", "--all", "--force", ".")
        git(self.checkout, "commit", "--quiet", "--message", "product")
        git(folder, "clone", "--quiet", "--bare", str(self.checkout), str(self.bare))
        git(self.checkout, "remote", "add", "origin", "https://github.com/mesh/llm.git")
        self.base = self.tip()

    def update(self) -> str:
        """Bring the checkout to the tip of main; its commit."""
        git(self.checkout, "fetch", "--quiet", str(self.bare), "main")
        git(self.checkout, "reset", "--quiet", "--hard", "FETCH_HEAD")
        return self.tip()

    @property
    def pin(self) -> str:
        """The pin on main."""
        return self.read(PIN_FILE).strip()


def weights_key(path: Path) -> str:
    """Where the weights lie below the prefix of the S3 store."""
    return f"{WEIGHTS_REPO}/{WEIGHTS_REVISION}/{path.name}"


def _write_tree(root: Path, weights: dict[str, Path]) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=ignore)
        else:
            shutil.copy(source, root / name)
    shutil.copy(STUBS / "setup" / "action.yml", root / "actions" / "setup" / "action.yml")
    shutil.copytree(Path(__file__).with_name("scripts"), root / "scripts")
    shutil.copytree(PATCHES, root / "third_party" / "llama.cpp" / "patches")
    (root / PIN_FILE).write_text(f"{OLD_PIN}\n", encoding="utf-8")
    batteries = json.loads((root / "manifests" / "batteries.json").read_text(encoding="utf-8"))
    for tiers in batteries["events"].values():
        for battery in tiers.values():
            battery["backends"] = ["cpu"]  # no accelerator here
    (root / "manifests" / "batteries.json").write_text(json.dumps(batteries, indent=2) + "\n", encoding="utf-8")
    manifest = load_manifest(ROOT / "manifests")
    rows = [_row(manifest.family(family).to_row(), weights[arch]) for family, arch in FAMILIES.items()]
    rows.append(manifest.family(DROPPED).to_row())
    lines = ",\n".join(json.dumps(row) for row in sorted(rows, key=lambda row: str(row["family"])))
    text = f'{{\n"schema_version": 1,\n"families": [\n{lines}\n]\n}}\n'
    (root / "manifests" / "families.json").write_text(text, encoding="utf-8")


def _row(row: dict[str, Any], path: Path) -> dict[str, Any]:
    """The row of a family, with a twin as the file that it pins. What narrow wires do to random weights is nobody's promise."""
    file = {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    artifact = {"repo": WEIGHTS_REPO, "revision": WEIGHTS_REVISION, "selector": "F32", "files": {path.name: file}}
    return {**row, "artifact": artifact, "wire": {"f32": "required", "f16": "rejected", "q8": "rejected"}}
