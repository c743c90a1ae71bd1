"""Every workflow and action keeps our rules, and every rule sees a violation of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from matrixgen.manifest import load_manifest
from tests.workflows.rules import RULES, findings
from tests.workflows.walker import ACTIONS, ROOT, WORKFLOWS, File, parse, read

CHECKOUT = "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2"
GUARDED = "${{ github.event_name != 'pull_request' && secrets.HF_TOKEN || '' }}"
SAVE = "github.ref == 'refs/heads/main' && github.event_name == 'push'"

# (rule, file, what stands there, what is put in its place)
VIOLATIONS: list[tuple[str, str, str, str]] = [
    ("permissions", "ci.yml", "\npermissions: {}\n", "\n"),
    ("permissions", "ci.yml", "\npermissions: {}\n", "\npermissions: write-all\n"),
    ("permissions", "ci.yml", "      contents: read\n", "      contents: write\n"),
    ("permissions", "ci.yml", "    permissions:\n      contents: read\n    steps:", "    steps:"),
    ("permissions", "nightly-stability.yml", "      contents: read\n", "      contents: read\n      id-token: write\n"),
    (
        "permissions",
        "llama-upstream-canary.yml",
        " && github.event_name != 'pull_request'\n    runs-on",
        "\n    runs-on",
    ),
    ("timeouts", "ci.yml", "    timeout-minutes: 90\n", ""),
    ("timeouts", "family-certify-chunk.yml", "    timeout-minutes: ${{ inputs.leg_minutes }}\n", ""),
    ("no_forgiving", "family-certify.yml", "    if: always()\n", "    if: always()\n    continue-on-error: true\n"),
    ("no_forgiving", "ci.yml", "run: bash .ci/run", "run: |\n          bash .ci/run || true"),
    ("no_forgiving", "family-certify.yml", "      fail-fast: false\n", ""),
    ("no_forgiving", "family-certify-chunk.yml", "      fail-fast: false\n", ""),
    ("pinned", "ci.yml", CHECKOUT, "actions/checkout@v6"),
    ("pinned", "ci.yml", CHECKOUT, CHECKOUT.replace("de0f", "0000")),
    ("pinned", "ci.yml", CHECKOUT, CHECKOUT.replace("# v6.0.2", "# v6.0.1")),
    ("pinned", "ci.yml", CHECKOUT, "someone/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2"),
    ("pinned", "certify/action.yml", "# v7.0.1", "# v7"),
    ("no_splicing", "ci.yml", "run: bash .ci/run", "run: bash .ci/run ${{ github.head_ref }}"),
    ("no_splicing", "certify/action.yml", 'run: bash "$GITHUB_ACTION_PATH', 'run: bash "${{ github.action_path }}'),
    ("no_splicing", "plan/action.yml", "plan.sh", "plan.sh ${{ inputs.families }}"),
    ("checkouts", "ci.yml", "          persist-credentials: false\n", "          persist-credentials: true\n"),
    ("checkouts", "ci.yml", "        with:\n          persist-credentials: false\n", ""),
    ("concurrency", "ci.yml", "  group: ci-${{ github.ref }}\n", "  group: ci\n"),
    ("concurrency", "llama-upstream-canary.yml", "${{ github.event_name == 'pull_request' }}\n", "true\n"),
    (
        "concurrency",
        "family-certify-chunk.yml",
        "    strategy:\n",
        "    concurrency:\n      group: gpu-box\n    strategy:\n",
    ),
    (
        "needs_fit",
        "family-certify.yml",
        "          needs: >-\n",
        "          needs: ${{ toJSON(needs) }}\n          x: >-\n",
    ),
    ("needs_fit", "family-certify.yml", "${{ needs.build.result }}", "success"),
    ("no_secrets_for_pull_requests", "llama-upstream-canary.yml", GUARDED, "${{ secrets.HF_TOKEN }}"),
    ("no_secrets_for_pull_requests", "ci.yml", "\n  pull_request:\n", "\n  pull_request_target:\n"),
    (
        "no_secrets_for_pull_requests",
        "ci.yml",
        "    with:\n      event",
        "    secrets: inherit\n    with:\n      event",
    ),
    ("no_secrets_for_pull_requests", "fetch/action.yml", "STORE: ${{ inputs.store }}", "STORE: ${{ secrets.STORE }}"),
    ("runners", "ci.yml", "runs-on: ubuntu-24.04\n    timeout-minutes: 90", "runs-on: gpu\n    timeout-minutes: 90"),
    ("runners", "family-certify.yml", "github.event_name == 'pull_request' && 'ubuntu-24.04' || matrix", "matrix"),
    (
        "runners",
        "family-certify-chunk.yml",
        "github.event_name == 'pull_request' && 'ubuntu-24.04' || matrix",
        "matrix",
    ),
    ("runners", "ci.yml", "runs-on: ubuntu-24.04", "runs-on: [self-hosted, linux]"),
    ("matrices", "family-certify.yml", "fromJSON(needs.plan.outputs.chunks)", "fromJSON(inputs.matrix)"),
    ("matrices", "family-certify-chunk.yml", "fromJSON(inputs.matrix)", "fromJSON(inputs.name)"),
    ("matrices", "family-certify-chunk.yml", "  workflow_call:\n", "  workflow_dispatch:\n"),
    ("matrices", "family-certify.yml", "    if: needs.plan.outputs.has_legs == 'true'\n", ""),
    ("required_check", "ci.yml", "    if: always()\n", "    if: success()\n"),
    ("required_check", "ci.yml", "    if: always()\n", ""),
    ("required_check", "ci.yml", "needs: [checks, certify]", "needs: [certify]"),
    ("required_check", "ci.yml", "needs: [checks, certify]", "needs: [checks]"),
    ("required_check", "ci.yml", '.result == "success"', '.result != "failure"'),
    ("required_check", "ci.yml", "length > 0 and ", ""),
    ("required_check", "ci.yml", "VERDICT: ${{ needs.certify.outputs.verdict }}", "VERDICT: green"),
    ("required_check", "ci.yml", "NEEDS: ${{ toJSON(needs) }}", "NEEDS: ${{ toJSON(needs.certify) }}"),
    ("required_check", "ci.yml", "  verdict:\n", "  other:\n"),
    ("required_check", "ci.yml", "name: ci verdict", "name: ${{ github.job }}"),
    ("caches", "ci.yml", "'.github/cache-version.txt', ", ""),
    ("caches", "ci.yml", SAVE, "github.event_name == 'push'"),
    ("caches", "ci.yml", SAVE, "github.ref == 'refs/heads/main'"),
    ("caches", "ci.yml", "actions/cache/restore@", "actions/cache@"),
    (
        "caches",
        "ci.yml",
        "          path: ~/.cache/pip\n",
        "          path: ~/.cache/pip\n          restore-keys: skippy-\n",
    ),
    ("caches", "fetch/action.yml", "key: ${{ inputs.model-key }}", "key: models"),
    ("artifact_names", "certify/action.yml", "${{ steps.certify.outputs.artifact }}\n", "receipt-${{ inputs.job }}\n"),
    ("artifact_names", "release.yml", "name: skippy-distribution.${{ github.run_attempt }}", "name: distribution"),
    ("artifact_names", "plan/action.yml", "        if-no-files-found: error\n", ""),
    ("evidence_always", "certify/action.yml", "always() && ", ""),
    ("evidence_always", "gate/action.yml", "if: always() && ", "if: "),
    ("evidence_always", "family-certify.yml", "    if: always()\n", "    if: needs.certify.result != 'skipped'\n"),
    ("shells", "ci.yml", "    shell: bash\n", "    working-directory: .\n"),
    ("shells", "plan/action.yml", "shell: bash", "shell: sh"),
    ("documented", "plan/action.yml", "        NAME: ${{ inputs.name }}\n", ""),
    ("documented", "plan/action.yml", "    description: Number of legs.\n", ""),
]


def named(name: str) -> File:
    """The workflow or action of this name."""
    return next(file for file in map(read, [*WORKFLOWS, *ACTIONS]) if file.name == name)


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_keeps_the_rules(path: Path) -> None:
    """No workflow and no action breaks a rule."""
    assert findings(read(path)) == []


@pytest.mark.parametrize(("rule", "name", "old", "new"), VIOLATIONS, ids=lambda value: str(value)[:32])
def test_a_violation_is_caught(rule: str, name: str, old: str, new: str) -> None:
    """Each rule sees a violation that is put into a real file."""
    file = named(name)
    assert old in file.text, "the seeded violation has no place to go"
    broken = findings(parse(name, file.text.replace(old, new)))
    assert any(finding.startswith(f"{name}: {rule}: ") for finding in broken), broken


def test_every_rule_has_a_violation() -> None:
    """No rule is only there for show."""
    assert {rule.__name__ for rule in RULES} == {rule for rule, *_ in VIOLATIONS}


def test_all_files_of_the_issue_exist() -> None:
    """The workflows and actions that the issue names are there."""
    assert {path.stem for path in WORKFLOWS} == {
        "ci",
        "family-certify",
        "family-certify-chunk",
        "llama-upstream-canary",
        "nightly-stability",
        "release",
        "skippy-radix-cache-benchmark",
        "static-abi-artifact",
    }
    assert {path.parent.name for path in ACTIONS} == {"setup", "plan", "build", "fetch", "certify", "gate", "report"}


def test_names_of_required_checks_are_unique() -> None:
    """Two producers of one check name would hide each other."""
    names = [job["name"] for path in WORKFLOWS for job in read(path).jobs.values() if "verdict" in job["name"]]
    assert len(names) == len(set(names)) == 5


def test_the_cache_version_is_that_of_the_manifest() -> None:
    """One number invalidates every cache: that of `.github/cache-version.txt` is in the plan's keys too."""
    text = (ROOT / ".github" / "cache-version.txt").read_text(encoding="utf-8").strip()
    assert text == load_manifest(ROOT / "manifests").pin.cache_version


def test_actionlint_knows_the_labels_of_our_runners() -> None:
    """The labels that actionlint accepts are exactly those that the manifest's runner classes have."""
    labels = {label for runner in load_manifest(ROOT / "manifests").runners for label in runner.labels}
    builtin = {"self-hosted", "Linux", "X64", "ubuntu-24.04"}
    configured = re.search(r"labels: \[(.*)\]", (ROOT / ".github" / "actionlint.yaml").read_text(encoding="utf-8"))
    assert configured
    assert set(configured[1].split(", ")) == labels - builtin


def test_pinned_actions_are_all_used() -> None:
    """The table of third-party actions holds no entry that nobody uses, and every sha is a full one."""
    table = json.loads((ROOT / ".github" / "pinned-actions.json").read_text(encoding="utf-8"))
    text = "".join(read(path).text for path in [*WORKFLOWS, *ACTIONS])
    assert all(f"{name}@" in text or f"{name}/" in text for name in table)
    assert all(re.fullmatch(r"[0-9a-f]{40}", entry["sha"]) for entry in table.values())


def test_nothing_is_compiled_after_the_build() -> None:
    """A leg installs wheels only: from the hashed requirements without sources, and from the build without an index."""
    setup = (ROOT / "actions" / "setup" / "setup.sh").read_text(encoding="utf-8")
    fetch = (ROOT / "actions" / "fetch" / "fetch.sh").read_text(encoding="utf-8")
    assert [line for line in setup.splitlines() if "pip install" in line and "--only-binary :all:" not in line] == []
    assert [line for line in fetch.splitlines() if "pip install" in line and "--no-index" not in line] == []
    leg = {step.get("uses") for step in named("family-certify-chunk.yml").jobs["certify"]["steps"]}
    assert {use for use in leg if use.startswith("./")} == {"./actions/setup", "./actions/fetch", "./actions/certify"}
    assert all("run" not in step for step in named("family-certify-chunk.yml").jobs["certify"]["steps"])
