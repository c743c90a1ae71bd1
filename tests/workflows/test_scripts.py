"""The scripts behind the actions and the required check: what they let through and what they refuse."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from matrixgen.manifest import load_manifest
from matrixgen.plan import build_plan, write_plan
from tests.workflows.rules import REQUIRED_SCRIPT
from tests.workflows.walker import ROOT, WORKFLOWS, read

KEY = "mesh-llm-linux-x64-skippy-ci-build-cpu-" + "0" * 64 + "~"
BASH = shutil.which("bash") or "bash"


def module(path: str) -> ModuleType:
    """A script of an action as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "actions" / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def bash(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as GitHub's `shell: bash` does, with nothing but the given environment and PATH."""
    command = [BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


def common(call: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call a function of common.sh."""
    return bash(f"source actions/common.sh; {call}", **environment)


@pytest.mark.parametrize(
    ("needs", "verdict", "green"),
    [
        ({"a": "success", "b": "success"}, "green", True),
        *(
            ({"a": "success", "b": result}, "green", False)
            for result in ("failure", "cancelled", "skipped", "", "Success", "neutral")
        ),
        ({}, "green", False),
        *(({"a": "success"}, verdict, False) for verdict in ("red", "infra", "", "Green", "green ", "skipped")),
    ],
)
def test_required_check_takes_success_and_green_alone(needs: dict[str, str], verdict: str, green: bool) -> None:
    """Skipped, cancelled, empty and unknown results block, and so does every verdict that is not green."""
    context = json.dumps({name: {"result": result, "outputs": {}} for name, result in needs.items()})
    done = bash(REQUIRED_SCRIPT, NEEDS=context, VERDICT=verdict)
    assert (done.returncode == 0) is green, done.stdout + done.stderr


@pytest.mark.parametrize("context", ["", "null", "[]", "{", '{"a": null}', '{"a": {}}', '{"a": "success"}'])
def test_required_check_refuses_a_context_that_is_none(context: str) -> None:
    """A needs context that is missing, broken or of another form is not green."""
    assert bash(REQUIRED_SCRIPT, NEEDS=context, VERDICT="green").returncode != 0


@pytest.mark.parametrize(
    ("event", "runner", "allowed"),
    [
        ("pull_request", "github-hosted", True),
        ("pull_request", "self-hosted", False),
        ("pull_request", "", False),
        ("pull_request_target", "self-hosted", False),
        ("schedule", "self-hosted", True),
        ("push", "self-hosted", True),
    ],
)
def test_foreign_code_never_runs_on_our_machines(event: str, runner: str, allowed: bool) -> None:
    """A pull request is refused on a runner that is not known to be GitHub's."""
    environment = {"GITHUB_EVENT_NAME": event} | ({"RUNNER_ENVIRONMENT": runner} if runner else {})
    assert (common("refuse_foreign_code", **environment).returncode == 0) is allowed


def test_every_script_that_runs_code_refuses_foreign_code() -> None:
    """The guard stands in each action that runs what came from the repository or from an artifact."""
    for name in ("setup/setup.sh", "plan/plan.sh", "build/build.sh", "fetch/fetch.sh", "certify/certify.sh"):
        assert "\nrefuse_foreign_code\n" in (ROOT / "actions" / name).read_text(encoding="utf-8"), name


def test_an_error_cannot_start_another_workflow_command() -> None:
    """New lines in a message are escaped, so nothing in it begins a line of its own."""
    done = common('fail "$TEXT"', TEXT="bad\n::set-output name=x::y\r%0A")
    assert done.returncode == 1
    assert done.stdout == "::error::bad%0A::set-output name=x::y%0D%250A\n"


def test_outputs_survive_any_value(tmp_path: Path) -> None:
    """A value with new lines and something like a delimiter is one value."""
    target = tmp_path / "output"
    value = "a=b\nEOF\nx<<EOF\ny"
    done = common('output first "$VALUE"; output second 2', VALUE=value, GITHUB_OUTPUT=str(target))
    assert done.returncode == 0, done.stderr
    lines = target.read_text(encoding="utf-8").split("\n")
    delimiter = lines[0].removeprefix("first<<")
    assert "\n".join(lines[1 : lines.index(delimiter, 1)]) == value
    assert lines[lines.index(delimiter, 1) + 1].startswith("second<<")


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ("", []),
        (" \n ", []),
        ("1", ["--tier=1"]),
        ("1,2 3\n4", ["--tier=1", "--tier=2", "--tier=3", "--tier=4"]),
        ("* $(id) `id` --help", ["--tier=*", "--tier=$(id)", "--tier=`id`", "--tier=--help"]),
    ],
)
def test_lists_become_options(values: str, options: list[str]) -> None:
    """A list of words becomes one option a word; nothing is expanded, and no word can be an option itself."""
    script = 'arguments=(); add_options --tier "$VALUES"; printf "%s\\n" ${arguments[@]+"${arguments[@]}"}'
    done = common(script, VALUES=values)
    assert [line for line in done.stdout.split("\n") if line] == options


@pytest.mark.parametrize("name", ["", "-a", "a.b", "a/b", "A", "a b", "a*"])
def test_a_name_that_could_collide_is_refused(name: str) -> None:
    """A name with a dot, a separator or a wild card would match another's artifacts."""
    assert common('require_name name "$NAME"', NAME=name).returncode == 1
    assert common('require_name name "$NAME"', NAME="ci-2").returncode == 0


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A build script's folder: an executable, a library in a folder, and a link to it."""
    folder = tmp_path / "out"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "libllama.so.1").write_bytes(b"library")
    (folder / "lib" / "libllama.so").symlink_to("libllama.so.1")
    (folder / "tool").write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "tool").chmod(0o755)
    return folder


def artifact(tmp_path: Path, folder: Path, attempt: int, *, key: str = KEY) -> Path:
    """Pack a build as the artifact of an attempt; the folder of all artifacts."""
    target = tmp_path / "artifacts" / f"build.{attempt}"
    target.mkdir(parents=True)
    (folder / "contents.json").unlink(missing_ok=True)
    assert module("build/pack.py").main(str(folder), str(target / "build.tar"), key) == ""
    return target.parent


def test_a_build_comes_back_as_it_was(tmp_path: Path, built: Path) -> None:
    """Modes and links survive the artifact, and the newest attempt is taken."""
    artifacts = artifact(tmp_path, built, 1)
    (built / "tool").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    artifact(tmp_path, built, 10)
    artifact(tmp_path, built, 9)
    assert module("fetch/unpack.py").main(str(artifacts), str(tmp_path / "back"), KEY) == ""
    assert (tmp_path / "back" / "tool").read_text(encoding="utf-8") == "#!/bin/sh\nexit 0\n"
    assert (tmp_path / "back" / "tool").stat().st_mode & 0o100
    assert (tmp_path / "back" / "lib" / "libllama.so").readlink() == Path("libllama.so.1")


def test_a_single_artifact_without_its_folder_is_found(tmp_path: Path, built: Path) -> None:
    """actions/download-artifact unpacks a single match into the path itself."""
    artifacts = artifact(tmp_path, built, 1)
    assert module("fetch/unpack.py").main(str(artifacts / "build.1"), str(tmp_path / "back"), KEY) == ""


def _other_key(artifacts: Path, folder: Path) -> None:
    (folder / "contents.json").unlink()
    module("build/pack.py").main(str(folder), str(artifacts / "build.1" / "build.tar"), KEY.replace("0", "1"))


def _repack(change: Callable[[Path], object]) -> Callable[[Path, Path], None]:
    def tamper(artifacts: Path, folder: Path) -> None:
        change(folder)
        with tarfile.open(artifacts / "build.1" / "build.tar", "w") as archive:
            archive.add(folder, arcname=".")

    return tamper


def _escape(artifacts: Path, _folder: Path) -> None:
    with tarfile.open(artifacts / "build.1" / "build.tar", "w") as archive:
        archive.add(__file__, arcname="../escaped")


def _bend(folder: Path) -> None:
    (folder / "lib" / "libllama.so").unlink()
    (folder / "lib" / "libllama.so").symlink_to("../tool")


TAMPERED: dict[str, Callable[[Path, Path], object]] = {
    "another build key": _other_key,
    "a changed byte": _repack(lambda folder: (folder / "lib" / "libllama.so.1").write_bytes(b"Library")),
    "an added file": _repack(lambda folder: (folder / "lib" / "extra.so").write_bytes(b"")),
    "a lost file": _repack(lambda folder: (folder / "tool").unlink()),
    "a link bent elsewhere": _repack(_bend),
    "no list": _repack(lambda folder: (folder / "contents.json").unlink()),
    "a list that is none": _repack(lambda folder: (folder / "contents.json").write_text("[]", encoding="utf-8")),
    "a truncated archive": lambda artifacts, _: os.truncate(artifacts / "build.1" / "build.tar", 700),
    "a path that leads out": _escape,
    "no build at all": lambda artifacts, _: (artifacts / "build.1" / "build.tar").unlink(),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_a_build_that_is_not_what_was_packed_is_refused(
    tamper: Callable[[Path, Path], object], tmp_path: Path, built: Path
) -> None:
    """Whatever was changed on the way is named, and nothing is written outside of the folder."""
    artifacts = artifact(tmp_path, built, 1)
    tamper(artifacts, built)
    problem = module("fetch/unpack.py").main(str(artifacts), str(tmp_path / "back"), KEY)
    assert problem.startswith("the build cannot be used: ")
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("fault", ["empty", "link out", "dangling link", "pipe", "list"])
def test_a_build_that_cannot_be_shipped_is_refused(fault: str, tmp_path: Path, built: Path) -> None:
    """An empty build, a link that leads out and a special file end the build job."""
    if fault == "empty":
        shutil.rmtree(built)
        built.mkdir()
    elif fault == "list":
        (built / "contents.json").write_text("{}", encoding="utf-8")
    elif fault == "pipe":
        os.mkfifo(built / "pipe")
    else:
        (built / "link").symlink_to("../.." if fault == "link out" else "nowhere")
    assert module("build/pack.py").main(str(built), str(tmp_path / "build.tar"), KEY).startswith("cannot pack")


def test_only_the_plan_of_this_run_is_used(tmp_path: Path) -> None:
    """A plan of another digest, a changed plan and a missing plan are refused."""
    plan = build_plan(load_manifest(ROOT / "manifests"), event="pull-request", families=["lfm2"])
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    same = module("same_plan.py").main
    assert same(str(path), plan.digest) == ""
    assert "is of another run" in same(str(path), "sha256:" + "0" * 64)
    path.write_text(path.read_text(encoding="utf-8").replace("lfm2", "lfm3"), encoding="utf-8")
    assert same(str(path), plan.digest) != ""
    assert same(str(tmp_path / "none.json"), plan.digest) != ""


def test_release_notes_name_every_dropped_family(tmp_path: Path) -> None:
    """The notes hold the change log of the version, and a breaking change with every Tier 3 family and its reason."""
    (tmp_path / ".github" / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / ".github" / "scripts" / "release-notes.sh", tmp_path / ".github" / "scripts")
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    log = "# Changelog\n\n## [1.2.0] - 2026-12-01\n\n- new\n\n## [1.1.0]\n\n- old\n"
    (tmp_path / "CHANGELOG.md").write_text(log, encoding="utf-8")
    script = str(tmp_path / ".github" / "scripts" / "release-notes.sh")
    notes = bash(f"'{script}' v1.2.0").stdout
    assert "- new" in notes
    assert "- old" not in notes
    assert "### Breaking" in notes
    for family in load_manifest(ROOT / "manifests").families:
        assert (f"| `{family.family}` | `{family.arch}` | {family.reason} |" in notes) is (family.tier == 3)
    missing = bash(f"'{script}' v9.0.0")
    assert missing.returncode == 1
    assert "write it before the tag" in missing.stderr
    (tmp_path / "manifests" / "families.json").write_text('{"families": []}', encoding="utf-8")
    assert bash(f"'{script}' v1.2.0").returncode != 0


RESOLVE = next(path for path in WORKFLOWS if path.name == "llama-upstream-canary.yml")


@pytest.mark.parametrize(
    ("environment", "outputs"),
    [
        ({"GITHUB_EVENT_NAME": "schedule"}, {"event": "llama-bump", "llama_commit": "HEAD", "publish": "true"}),
        ({"GITHUB_EVENT_NAME": "push"}, {"event": "patch-edit", "llama_commit": "", "publish": "false"}),
        ({"GITHUB_EVENT_NAME": "pull_request"}, {"event": "pull-request", "llama_commit": "", "publish": "false"}),
        (
            {"GITHUB_EVENT_NAME": "workflow_dispatch", "REQUESTED": "a" * 40},
            {"event": "llama-bump", "llama_commit": "a" * 40, "publish": "true"},
        ),
        (
            {"GITHUB_EVENT_NAME": "workflow_dispatch", "DRY_RUN": "true"},
            {"event": "llama-bump", "llama_commit": "HEAD", "publish": "false"},
        ),
        (
            {"GITHUB_EVENT_NAME": "workflow_dispatch", "GITHUB_REF": "refs/heads/other"},
            {"event": "llama-bump", "llama_commit": "HEAD", "publish": "false"},
        ),
    ],
)
def test_upstream_is_resolved(environment: dict[str, str], outputs: dict[str, str], tmp_path: Path) -> None:
    """A bump takes the head of upstream by full id; other events keep the pin; only a real run on main may publish."""
    upstream = tmp_path / "llama.cpp"
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    made = bash(f"git init -q '{upstream}' && git -C '{upstream}' commit -q --allow-empty -m x", **identity)
    assert made.returncode == 0, made.stderr
    head = bash(f"git -C '{upstream}' rev-parse HEAD").stdout.strip()
    script = read(RESOLVE).jobs["resolve"]["steps"][0]["run"]
    target = tmp_path / "output"
    base = {"REQUESTED": "", "DRY_RUN": "", "UPSTREAM": str(upstream), "GITHUB_REF": "refs/heads/main"}
    done = bash(script, **base | environment, GITHUB_OUTPUT=str(target))
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = {name: head if value == "HEAD" else value for name, value in outputs.items()}
    assert dict(line.split("=", 1) for line in target.read_text(encoding="utf-8").splitlines()) == wanted


@pytest.mark.parametrize("requested", ["master", "b10361", "a" * 39, "A" * 40, "$(id)"])
def test_a_pin_that_is_no_full_id_is_refused(requested: str, tmp_path: Path) -> None:
    """Branches, tags and short ids are no pins."""
    script = read(RESOLVE).jobs["resolve"]["steps"][0]["run"]
    environment = {
        "GITHUB_EVENT_NAME": "workflow_dispatch",
        "DRY_RUN": "",
        "UPSTREAM": "",
        "GITHUB_REF": "refs/heads/main",
    }
    done = bash(script, **environment, REQUESTED=requested, GITHUB_OUTPUT=str(tmp_path / "output"))
    assert done.returncode != 0


def test_an_upstream_that_cannot_be_reached_is_refused(tmp_path: Path) -> None:
    """No head, no bump."""
    script = read(RESOLVE).jobs["resolve"]["steps"][0]["run"]
    environment = {"GITHUB_EVENT_NAME": "schedule", "DRY_RUN": "", "REQUESTED": "", "GITHUB_REF": "refs/heads/main"}
    done = bash(script, **environment, UPSTREAM=str(tmp_path / "none"), GITHUB_OUTPUT=str(tmp_path / "output"))
    assert done.returncode != 0


@pytest.mark.slow
def test_the_distribution_is_built_from_hashed_tools(tmp_path: Path) -> None:
    """The release's script makes a wheel and an sdist with the pinned build backend alone."""
    done = bash(f"bash .github/scripts/build-distribution.sh '{tmp_path}'", HOME=os.environ.get("HOME", ""))
    assert done.returncode == 0, done.stderr
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".whl"]
