"""actionlint, zizmor and the published schemas find nothing, and each finds what is put there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflows.walker import ACTIONS, ROOT, WORKFLOWS

BIN = Path(sys.executable).parent


def command(name: str, root: Path) -> list[str]:
    """The argument list of a linter for the workflows and actions below `root`."""
    schema = [f"{BIN}/check-jsonschema", "--builtin-schema"]
    match name:
        case "actionlint":
            return [f"{BIN}/actionlint", "-no-color", "-shellcheck", f"{BIN}/shellcheck"]
        case "zizmor":
            return [f"{BIN}/zizmor", "--offline", "--no-progress", "--persona=auditor", ".github", "actions"]
        case "shellcheck":
            scripts = sorted([*root.glob("actions/**/*.sh"), *root.glob(".github/scripts/*.sh")])
            return [f"{BIN}/shellcheck", "-x", "-s", "bash", *map(str, scripts)]
        case "workflow schema":
            return [*schema, "vendor.github-workflows", *map(str, sorted(root.glob(".github/workflows/*.yml")))]
        case _:
            return [*schema, "vendor.github-actions", *map(str, sorted(root.glob("actions/*/action.yml")))]


LINTERS = ("actionlint", "zizmor", "shellcheck", "workflow schema", "action schema")

# (linter, file, what stands there, what is put in its place, a word of the finding)
SEEDED = [
    ("actionlint", ".github/workflows/ci.yml", "needs: [checks, certify]", "needs: [check, certify]", "check"),
    ("actionlint", ".github/workflows/ci.yml", "runs-on: ubuntu-24.04", "runs-on: ubuntu-1", "ubuntu-1"),
    ("actionlint", ".github/workflows/family-certify.yml", "event: ${{ inputs.event }}", "evnt: x", "evnt"),
    ("actionlint", ".github/workflows/ci.yml", "      engine: binding", "      motor: binding", "motor"),
    ("zizmor", ".github/workflows/ci.yml", "persist-credentials: false", "persist-credentials: true", "artipacked"),
    (
        "zizmor",
        ".github/workflows/ci.yml",
        "run: bash .ci/run",
        "run: echo ${{ github.head_ref }}",
        "template-injection",
    ),
    ("zizmor", "actions/gate/action.yml", "@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1", "@v8", "unpinned-uses"),
    ("zizmor", ".github/workflows/ci.yml", "\npermissions: {}\n", "\n", "excessive-permissions"),
    ("actionlint", ".github/workflows/ci.yml", "run: bash .ci/run", "run: echo $HOME/*.x", "SC2086"),
    ("shellcheck", "actions/gate/gate.sh", 'cp "$plan"', "cp $plan", "SC2086"),
    ("workflow schema", ".github/workflows/ci.yml", "    runs-on: ubuntu-24.04\n    timeout", "    timeout", "runs-on"),
    ("workflow schema", ".github/workflows/ci.yml", "    name: checks\n", "    nme: checks\n", "nme"),
    ("action schema", "actions/plan/action.yml", "  using: composite\n", "  using: perl\n", "perl"),
    ("action schema", "actions/plan/action.yml", "      shell: bash\n", "", "plan/action.yml"),
]


def lint(name: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run a linter over the workflows and actions below `root`."""
    return subprocess.run(command(name, root), cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the workflows and actions that may be broken."""
    for name in (".github", "actions"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / ".git").mkdir()  # actionlint looks for its configuration at the root of the repository
    return tmp_path


@pytest.mark.parametrize("name", LINTERS)
def test_a_linter_finds_nothing(name: str) -> None:
    """The linter ran, exits 0, and what it does not follow has its reason in the configuration."""
    assert WORKFLOWS
    assert ACTIONS
    done = lint(name, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "file", "old", "new", "word"), SEEDED, ids=lambda value: str(value)[:24])
def test_a_linter_finds_what_is_put_there(name: str, file: str, old: str, new: str, word: str, copy: Path) -> None:
    """A linter that is fed a broken copy exits with an error that names the fault."""
    text = (copy / file).read_text(encoding="utf-8")
    assert old in text
    (copy / file).write_text(text.replace(old, new), encoding="utf-8")
    done = lint(name, copy)
    assert done.returncode != 0
    assert word in done.stdout + done.stderr


def test_each_silenced_audit_has_a_reason() -> None:
    """Nothing is silenced in zizmor's configuration without a comment right below it, and nowhere else."""
    config = (ROOT / ".github" / "zizmor.yml").read_text(encoding="utf-8")
    silenced = re.findall(r"^  ([\w-]+):\n((?:    # .+\n)*)", config, re.MULTILINE)
    assert [audit for audit, _ in silenced] == ["self-repository"]
    assert all(len(reason) > 80 for _, reason in silenced)
    inline = [path for path in [*WORKFLOWS, *ACTIONS] if "zizmor:" in path.read_text(encoding="utf-8")]
    assert inline == []
