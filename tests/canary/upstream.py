"""llama.cpp as an upstream whose main branch moves: the tree inside the binding's sdist, as a git repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.workflows.walker import ROOT

FAULT = Path(__file__).with_name("fault.patch")
_BINDING = "llama-cpp-python"
_MAIN, _BROKEN = "master", "broken"
_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "upstream"), ("EMAIL", "upstream@example.test"), ("DATE", "2026-11-01T00:00:00Z"))
}


@dataclass(frozen=True)
class Upstream:
    """The repository: `good` is what its main branch begins with, and one commit follows whose restore is broken."""

    folder: Path
    good: str

    @property
    def head(self) -> str:
        """Commit of its main branch."""
        return git(self.folder, "rev-parse", "HEAD")

    def break_restore(self) -> str:
        """Upstream gets a fault: the recurrent state of the first layer is read past and not restored, and all is called well."""
        git(self.folder, "update-ref", f"refs/heads/{_MAIN}", f"refs/heads/{_BROKEN}")
        return self.head

    def clone(self, folder: Path) -> Upstream:
        """Another one in `folder`, whose head moves alone."""
        git(folder, "clone", "--quiet", "--bare", str(self.folder), "llama.cpp.git")
        return _served(folder / "llama.cpp.git", self.good)


def git(folder: Path, *arguments: str) -> str:
    """Run git in `folder`, without the settings of whoever runs the tests; its output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**clean, **_IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make_upstream(folder: Path) -> Upstream:
    """An upstream below `folder`, with the llama.cpp that the binding of this project is made of."""
    tree = folder / "llama.cpp"
    given = os.environ.get("SKIPPY_LLAMA_SRC")
    if given:
        shutil.copytree(given, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    else:
        _unpack(_fetch_sdist(folder / "sdist"), tree)
    git(tree, "init", "--quiet", f"--initial-branch={_MAIN}")
    git(tree, "add", "--all", "--force", ".")
    git(tree, "commit", "--quiet", "--message", "llama.cpp of the binding's sdist")
    good = git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "--quiet", "-b", _BROKEN)
    git(tree, "apply", str(FAULT))
    git(tree, "commit", "--quiet", "--all", "--message", "state : read less")
    git(
        tree, "symbolic-ref", "HEAD", f"refs/heads/{_MAIN}"
    )  # the files stay as they are; nobody looks at them any more
    return _served(tree, good)


def _served(folder: Path, good: str) -> Upstream:
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")  # as GitHub does
    return Upstream(folder=folder, good=good)


def _fetch_sdist(folder: Path) -> Path:
    """The sdist of the binding, with the digest that `.ci/requirements/engine.txt` pins."""
    folder.mkdir()
    pinned = (ROOT / ".ci" / "requirements" / "engine.txt").read_text(encoding="utf-8")
    entry = re.search(rf"^{_BINDING}==.*(?:\n +--hash=.*)+", pinned, re.MULTILINE)
    assert entry, "the binding is not pinned"
    (folder / "binding.txt").write_text(f"{entry[0]}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-binary", _BINDING, "--require-hashes"]
    done = subprocess.run(
        [*command, "-d", str(folder), "-r", str(folder / "binding.txt")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.tar.gz")
    return found


def _unpack(sdist: Path, target: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(target.parent / "unpacked", filter="data")
    (tree,) = (target.parent / "unpacked").glob("*/vendor/llama.cpp")
    (tree / ".git").unlink(missing_ok=True)  # says that it is a submodule of something that is not here
    shutil.move(tree, target)
    shutil.rmtree(target.parent / "unpacked")
