"""The sources of a build: a clean copy of one commit of llama.cpp with the patch queue applied."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.build.compiler import run_tool
from agent.build.patches.apply import apply_queue
from agent.build.patches.queue import QueuedPatch, check_names
from agent.errors import BuildFailed, FileUnreadable, HeadersUnreadable

UPSTREAM = "https://github.com/ggml-org/llama.cpp"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ATTEMPTS = 4
_DELAY_SECONDS = 10.0
_FETCH_SECONDS = 900.0


def copy_checkout(checkout: Path, target: Path) -> str | None:
    """Copy the sources of `checkout` to `target`; the commit where it is a git checkout, else None.

    Raises:
        HeadersUnreadable: it is no llama.cpp.
        BuildFailed: it has changes that no commit has.
        FileUnreadable: it cannot be copied.
    """
    if not (checkout / "include" / "llama.h").is_file():
        raise HeadersUnreadable(f"{checkout} holds no include/llama.h: give the root of a llama.cpp checkout")
    if not (checkout / ".git").exists():
        try:
            shutil.copytree(checkout, target, symlinks=True, ignore=_left_by_others(checkout))
        except (OSError, shutil.Error) as error:
            raise FileUnreadable(
                f"{checkout} cannot be copied ({error}): check its permissions and the space"
            ) from error
        return None
    changed = _git(["status", "--porcelain", "--untracked-files=no"], checkout).splitlines()
    if changed:
        raise BuildFailed(
            f"{checkout} has changes that are in no commit ({changed[0].strip()}): such a build cannot be named. "
            "Commit them, or make a patch of them"
        )
    commit = _git(["rev-parse", "HEAD"], checkout).strip()
    archive = target.with_name(f"{target.name}.tar")
    _git(["archive", "--format=tar", "-o", str(archive.resolve()), commit], checkout)
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    archive.unlink()
    return commit


def _left_by_others(checkout: Path) -> Callable[[str, list[str]], set[str]]:
    """What is no source: Python's caches, and build folders at the root. Files such as `cmake/build-info.cmake` are sources."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        found = {name for name in names if name == "__pycache__"}
        if Path(folder) == checkout:
            found |= {name for name in names if re.match(r"build(-|$)", name) and (checkout / name).is_dir()}
        return found

    return ignored


def fetch_commit(commit: str, target: Path) -> None:
    """Fetch exactly one commit of llama.cpp from `LLAMA_UPSTREAM_URL`, else from its own repository.

    Raises:
        BuildFailed: it cannot be had, or what came is another commit.
    """
    if not _COMMIT.fullmatch(commit):
        raise BuildFailed(f"{commit!r} is no full commit: a build is named by 40 hex digits")
    address = os.environ.get("LLAMA_UPSTREAM_URL") or UPSTREAM  # a workflow without the variable gives an empty one
    target.mkdir(parents=True)
    _git(["init", "-q", "."], target)
    for attempt in range(1, _ATTEMPTS + 1):
        done = run_tool(
            ["git", "fetch", "-q", "--depth", "1", address, commit], cwd=target, timeout_seconds=_FETCH_SECONDS
        )
        if done.returncode == 0:
            break
        if attempt == _ATTEMPTS:
            words = (done.stderr.strip().splitlines() or ["git said nothing"])[-1]
            raise BuildFailed(f"{commit} cannot be fetched from {address}: {words}. Give a checkout with --llama-src")
        time.sleep(_DELAY_SECONDS * attempt)
    _git(["checkout", "-q", "FETCH_HEAD"], target)
    if (got := _git(["rev-parse", "HEAD"], target).strip()) != commit:
        raise BuildFailed(f"{address} gave {got} for {commit}: the source is not to be trusted")
    shutil.rmtree(target / ".git")


def apply_all(queue: Sequence[QueuedPatch], tree: Path) -> None:
    """Apply the queue.

    Raises:
        BuildFailed: a patch is broken or does not apply; the message begins with `patch_conflict`.
    """
    findings = [finding for finding in check_names(queue) if finding.severity == "error"]
    findings = findings or [finding for finding in apply_queue(queue, tree) if finding.severity == "error"]
    if findings:
        raise BuildFailed(f"patch_conflict: {findings[0]}. {findings[0].fix}")
    # with a repository around it, cmake would write the state of that into the libraries
    shutil.rmtree(tree / ".git", ignore_errors=True)


def _git(arguments: Sequence[str], folder: Path) -> str:
    done = run_tool(["git", *arguments], cwd=folder)
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["git said nothing"])[-1]
        raise BuildFailed(f"git {arguments[0]} failed in {folder}: {words}")
    return done.stdout
