"""`--changed-from`: which legs a change affects; what nobody knows affects all."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrixgen.battery import LANES
from matrixgen.changed import affected, rule_for
from matrixgen.manifest import Manifest
from matrixgen.plan import build_plan, restrict

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]


def git(folder: Path, *words: str) -> None:
    """Run git in `folder`."""
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.test")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(folder: Path) -> Path:
    """A repository with the manifest, one lane, one patch; the folder of its manifests."""
    top = folder.parent
    for path in ("agent/lanes/determinism.py", "third_party/llama.cpp/patches/0001-a.patch", "docs/x.md", "Makefile"):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text("one\n", encoding="utf-8")
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    return folder


def emitted(run: Run, repository: Path, *words: str) -> Any:
    """`emit` of what changed since the first commit."""
    return run("emit", "--event", "release", "--changed-from", "HEAD", "--manifests", str(repository), *words)


def ids(result: Any) -> set[str]:
    """Legs of a matrix on standard output."""
    return {entry["id"] for entry in json.loads(result.out)["include"]}


def test_nothing_changed_is_nothing_selected(run: Run, repository: Path) -> None:
    """No change affects no leg, which is an error of its own unless it may be."""
    assert emitted(run, repository).code == 3
    result = emitted(run, repository, "--allow-empty")
    assert (result.code, result.out) == (0, '{"include":[]}\n')


def test_a_moved_line_affects_its_family(run: Run, repository: Path) -> None:
    """Only the legs of the row, uncommitted or not; the others are told, once for all that share the reason."""
    run("move", "mamba", "--tier", "2", "--manifests", str(repository))
    result = emitted(run, repository)
    assert ids(result) == {"mamba@cpu"}
    assert "mamba@cpu: the row changed: tier; lanes dropped" in result.err
    lines = result.err.replace("\x1b[33m", "").replace("\x1b[0m", "").splitlines()
    head = next(number for number, line in enumerate(lines) if "not affected" in line)
    assert re.fullmatch(r"  15 families: cpu: not affected by the changes since [0-9a-f]{12}", lines[head])
    assert "kimi-linear" in lines[head + 1].strip().split(", ")
    assert sum("not affected" in line for line in lines) == 3  # one for each backend


@pytest.mark.parametrize(
    ("path", "which"),
    [
        ("agent/lanes/determinism.py", "lane"),
        ("third_party/llama.cpp/patches/0001-a.patch", "all"),
        ("third_party/llama.cpp/patches/0002-new.patch", "all"),
        (".github/cache-version.txt", "all"),
        ("agent/engine/session.py", "all"),
        ("Makefile", "all"),
        ("new-folder/thing", "all"),
        ("docs/x.md", "none"),
        ("tests/test_x.py", "none"),
    ],
)
def test_paths(run: Run, repository: Path, path: str, which: str) -> None:
    """A changed or new file affects the legs that its rule says, and a path that no rule knows affects all."""
    file = repository.parent / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("two\n", encoding="utf-8")
    result = emitted(run, repository, "--allow-empty")
    assert result.code == 0
    everything = ids(run("emit", "--event", "release", "--manifests", str(repository)))
    full = {leg for leg in everything if leg.split("@")[0] not in ("chatglm", "gpt2", "starcoder2")}
    tier_2 = ids(run("emit", "--event", "release", "--tier", "2", "--manifests", str(repository)))
    assert ids(result) == {"all": everything, "lane": full - tier_2, "none": set()}[which]
    assert which == "none" or path in result.err


def test_an_old_manifest_that_cannot_be_read_affects_all(run: Run, repository: Path) -> None:
    """What cannot be compared is not called unchanged."""
    good = (repository / "families.json").read_text(encoding="utf-8")
    (repository / "families.json").write_text("{}", encoding="utf-8")
    git(repository.parent, "commit", "-qam", "broken")
    (repository / "families.json").write_text(good, encoding="utf-8")
    result = emitted(run, repository)
    assert ids(result) == ids(run("emit", "--event", "release", "--manifests", str(repository)))
    assert "every leg counts as affected" in result.err


@pytest.mark.parametrize("revision", ["none", "-p", "--output=x", "", "HEAD..HEAD", "\x1b[31m", "a\nb"])
def test_wrong_revisions_are_messages(run: Run, repository: Path, revision: str) -> None:
    """A revision that git does not know, or that looks like an option, is exit code 2 with the next step."""
    result = run("emit", f"--changed-from={revision}", "--manifests", str(repository))
    assert result.code == 2
    assert "revision" in result.err
    assert "\x1b" not in result.err
    assert not (repository / "x").exists()


def test_no_repository_is_a_message(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of git the option cannot work, and says so."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(folder.parent))
    assert run("emit", "--changed-from", "HEAD", "--manifests", str(folder)).code == 2


def test_contracts_affect_those_who_owe_them(fixed: Manifest) -> None:
    """A recorded contract is what the lane `contract` compares with."""
    plan = build_plan(fixed, event="release")
    found = affected(plan, plan, ["manifests/contracts.json"])
    assert set(found) == {leg.id for leg in plan.legs if any(lane.name == "contract" for lane in leg.lanes)}


def test_every_lane_has_its_module() -> None:
    """A rule by lane rests on the name of the module; a lane whose module has another name would affect nobody."""
    modules = {path.stem.replace("_", "-") for path in (ROOT / "agent" / "lanes").glob("*.py")}
    assert set(LANES) - {"refuse"} <= modules
    assert all(rule_for(f"agent/lanes/{lane.replace('-', '_')}.py").effect == "lane" for lane in LANES)
    assert rule_for("agent/lanes/workload.py").effect == "every"


def test_every_file_of_this_repository_has_a_rule() -> None:
    """No tracked file falls to the last rule, so that a new kind of file is thought about once."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    paths = [path for path in done.stdout.split("\0") if path]
    assert paths
    assert [path for path in paths if rule_for(path).start == ""] == []


def test_restrict_keeps_only_what_is_needed(fixed: Manifest) -> None:
    """Builds of legs that are gone go too, and each leg that is gone is told."""
    plan = build_plan(fixed, event="release")
    small = restrict(plan, {"mamba@cuda"}, "a test")
    assert [leg.id for leg in small.legs] == ["mamba@cuda"]
    assert [build.backend for build in small.builds] == ["cuda"]
    assert len(small.skipped) == len(plan.skipped) + len(plan.legs) - 1
    assert small.digest != plan.digest
    assert dataclasses.replace(small, legs=plan.legs, builds=plan.builds, skipped=plan.skipped) == plan
