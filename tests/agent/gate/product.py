"""The product's repository: a real bare one, with a main branch that holds a pin and certified inputs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agent.gate.pin_file import Layout
from agent.gate.verdict import Verdict
from matrixgen.leg import Plan
from tests.agent.gate.kit import complete, make_plan, verdict_of

OLD_PIN = "0" * 40
FILES = {
    "manifests/pin.json": Layout.JSON.text(make_plan(commit=OLD_PIN).pin),
    "manifests/families.json": '{\n"schema_version": 1,\n"families": [\n{"family": "mamba"},\n{"family": "qwen3-dense"}\n]\n}\n',
    "third_party/llama.cpp/upstream.txt": OLD_PIN + "\n",
    "third_party/llama.cpp/patches/0006-state.patch": "a patch\n",
    ".github/workflows/canary.yml": "on: push\n",
    "src/main.rs": "fn main() {}\n",
    "README.md": "read me\n",
}
_PERSON = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "a person"), ("EMAIL", "person@example.test"))
}


class Product:
    """A bare repository, and a person who pushes to it."""

    def __init__(self, folder: Path) -> None:
        self.bare = folder / "product.git"
        self.bare.mkdir(parents=True)
        self.git("init", "--bare", "--quiet", "--initial-branch=main", ".")
        self.base = self.commit(FILES)

    def git(self, *arguments: str, given: bytes = b"", index: str = "test.index") -> str:
        """Run git in the bare repository."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        environment |= {**_PERSON, "GIT_INDEX_FILE": str(self.bare / index), "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(
            ["git", *arguments], cwd=self.bare, input=given, capture_output=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def tip(self, branch: str = "main") -> str:
        """Commit of a branch."""
        return self.git("rev-parse", f"refs/heads/{branch}")

    def read(self, path: str, commit: str = "main") -> str:
        """Text of a file."""
        return self.git("cat-file", "blob", f"{commit}:{path}")

    def branches(self) -> list[str]:
        """Names of all branches."""
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def changed(self, old: str, new: str) -> list[str]:
        """Paths that differ between two commits."""
        return self.git("diff", "--name-only", "--no-renames", old, new).splitlines()

    def commit(
        self, files: Mapping[str, str | None], *, branch: str = "main", parent: str | None = "tip", mode: str = "100644"
    ) -> str:
        """Somebody commits to the branch, behind everybody's back; a file that is None is removed."""
        exists = branch in self.branches()
        onto = (self.tip(branch) if exists else None) if parent == "tip" else parent
        self.git("read-tree", onto or "--empty")
        for path, text in files.items():
            if text is None:
                self.git("update-index", "--index-info", given=f"0 {OLD_PIN}\t{path}\n".encode())
            else:
                blob = self.git("hash-object", "-w", "--stdin", given=text.encode())
                self.git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")
        tree = self.git("write-tree")
        made = self.git("commit-tree", tree, *(["-p", onto] if onto else []), given=b"a change\n")
        self.git("update-ref", f"refs/heads/{branch}", made)
        return made

    def hook(self, script: str) -> None:
        """Install a pre-receive hook."""
        path = self.bare / "hooks" / "pre-receive"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


def certified(base: str, commit: str = "1" * 40) -> tuple[Plan, Verdict]:
    """A plan that tests a new pin on `base`, and its green verdict."""
    plan = make_plan(commit=commit)
    receipts = [replace(receipt, run={**receipt.run, "sha": base}) for receipt in complete(plan)]
    return plan, verdict_of(receipts, plan, base_commit=base)
