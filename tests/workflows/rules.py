"""Our own rules for workflows and composite actions, as functions from a parsed file to findings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from tests.workflows.walker import ROOT, File, conditional_jobs, jobs_after, needs_of

HOSTED = frozenset({"ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "windows-2022"})
PLANNED_RUNNER = "${{ github.event_name == 'pull_request' && 'ubuntu-24.04' || matrix.runs-on }}"
PLANNED_MATRIX = re.compile(r"\$\{\{ fromJSON\(needs\.plan\.outputs\.(chunks|builds)\) \}\}")
GIVEN_MATRIX = "${{ fromJSON(inputs.matrix) }}"  # of the called workflow that runs one chunk
NOT_A_PULL_REQUEST = "github.event_name != 'pull_request'"
ON_MAIN = "github.ref == 'refs/heads/main'"

# (workflow, job) -> what it may write; every other job reads at most
MAY_WRITE: dict[tuple[str, str], frozenset[str]] = {
    ("llama-upstream-canary.yml", "rights"): frozenset({"contents"}),
    ("llama-upstream-canary.yml", "attest"): frozenset({"id-token", "attestations"}),
    ("llama-upstream-canary.yml", "publish"): frozenset({"contents", "checks", "pull-requests"}),
    ("release.yml", "publish"): frozenset({"contents", "id-token", "attestations"}),
}
REQUIRED_SCRIPT = """\
jq -nr --argjson needs "$NEEDS" '$needs | to_entries[] | "\\(.key): \\(.value.result)"'
jq -ne --argjson needs "$NEEDS" '$needs | length > 0 and all(.[]; .result == "success")' >/dev/null ||
  { echo "::error::a job did not succeed"; exit 1; }
[ "$VERDICT" = green ] || { echo "::error::the verdict is '$VERDICT', not green"; exit 1; }
"""

Rule = Callable[[File], Iterator[str]]


def permissions(file: File) -> Iterator[str]:
    """Nothing by default; each job says what it needs; only the listed jobs write, and never for a pull request."""
    if not file.jobs:
        return
    if file.data.get("permissions") != {}:
        yield "the workflow must say `permissions: {}`"
    for name, job in file.jobs.items():
        given = job.get("permissions")
        if not isinstance(given, dict):
            yield f"job {name} must say its permissions, each by name"
            continue
        writes = {scope for scope, right in given.items() if right not in ("read", "none")}
        if extra := writes - MAY_WRITE.get((file.name, name), frozenset()):
            yield f"job {name} may not write {', '.join(sorted(extra))}"
        if writes and NOT_A_PULL_REQUEST not in job.get("if", ""):
            yield f"job {name} writes, so its `if` must hold {NOT_A_PULL_REQUEST}"


def timeouts(file: File) -> Iterator[str]:
    """Every job with steps ends by itself."""
    for name, job in file.jobs.items():
        if "uses" not in job and "timeout-minutes" not in job:
            yield f"job {name} has no timeout-minutes"


def no_forgiving(file: File) -> Iterator[str]:
    """Nothing turns red into green: no continue-on-error, no `|| true`."""
    if "continue-on-error" in file.text:
        yield "continue-on-error turns red into green"
    if re.search(r"\|\|\s*(true|:)\s*$", file.text, re.MULTILINE):
        yield "`|| true` turns red into green"
    for name, job in file.jobs.items():
        if "strategy" in job and job["strategy"].get("fail-fast") != "false":
            yield f"job {name}: a matrix needs fail-fast: false, so that each leg says what it saw"


def pinned(file: File) -> Iterator[str]:
    """Third-party actions are those of pinned-actions.json, by full sha and with the version as a comment."""
    table = json.loads((ROOT / ".github" / "pinned-actions.json").read_text(encoding="utf-8"))
    for line in re.findall(r"^\s*(?:- )?uses: (.+)$", file.text, re.MULTILINE):
        reference, _, comment = line.partition(" # ")
        name, _, sha = reference.strip().partition("@")
        if name.startswith("./"):
            continue
        known = table.get("/".join(name.split("/")[:2]))
        if known is None:
            yield f"{name} is not in pinned-actions.json"
        elif (sha, comment.strip()) != (known["sha"], known["version"]):
            yield f"{name} is pinned to {sha} # {comment}, pinned-actions.json says {known['sha']} # {known['version']}"


def no_splicing(file: File) -> Iterator[str]:
    """A shell gets values through the environment alone."""
    for where, step in file.steps():
        if "${{" in step.get("run", ""):
            yield f"{where} splices an expression into a shell: pass it through env"
        if "actions/github-script" in step.get("uses", ""):
            yield f"{where} runs a script of its own with github-script"


def checkouts(file: File) -> Iterator[str]:
    """No checkout leaves a token in the workspace."""
    for where, step in file.steps():
        persists = step.get("with", {}).get("persist-credentials") != "false"
        if step.get("uses", "").startswith("actions/checkout@") and persists:
            yield f"{where} must set persist-credentials: false"


def concurrency(file: File) -> Iterator[str]:
    """Every workflow that starts by itself has a group; runs that publish or certify are never cancelled by a newer one.

    Jobs of a matrix have none: a group holds one that waits, and cancels the others.
    """
    for name, job in file.jobs.items():
        if "strategy" in job and "concurrency" in job:
            yield f"job {name}: a group would cancel all jobs of the matrix but two"
    if not file.jobs or set(file.events) == {"workflow_call"}:
        return
    group = file.data.get("concurrency")
    if not isinstance(group, dict) or "github.ref" not in group.get("group", ""):
        yield "the workflow needs a concurrency group that holds github.ref"
    elif group.get("cancel-in-progress") not in ("false", "${{ github.event_name == 'pull_request' }}"):
        yield "only runs of a pull request may be cancelled by a newer one"


def needs_fit(file: File) -> Iterator[str]:
    """The gate hears of every job, and of no matrix: an environment variable holds 128 KiB on Linux, some 150 legs are more."""
    for name, job in file.jobs.items():
        large = [other for other in needs_of(job) if {"matrix", "chunks"} & set(file.jobs[other].get("outputs", {}))]
        if large and "toJSON(needs)" in str(job):
            yield f"job {name} takes all outputs of {', '.join(large)} into a variable: give the results alone"
        for step in job.get("steps", []):
            told = set(re.findall(r"needs\.([\w-]+)\.result", step.get("with", {}).get("needs", "")))
            if told and (forgotten := set(needs_of(job)) - told):
                yield f"job {name} does not tell the gate of {', '.join(sorted(forgotten))}"


def no_secrets_for_pull_requests(file: File) -> Iterator[str]:
    """A pull request gets no secret and never a privileged event; nothing inherits all secrets."""
    for event in ("pull_request_target", "workflow_run", "issue_comment"):
        if event in file.events:
            yield f"event {event} runs with secrets on what a stranger wrote"
    if re.search(r"secrets:\s*inherit", file.text):
        yield "secrets: inherit hands over everything"
    if "pull_request" not in file.events and file.jobs:
        return
    for expression in re.findall(r"\$\{\{(.*?)\}\}", file.text):
        if re.search(r"\bsecrets\b", expression) and not expression.strip().startswith(f"{NOT_A_PULL_REQUEST} && "):
            yield f"`{expression.strip()}` must begin with {NOT_A_PULL_REQUEST} &&"


def runners(file: File) -> Iterator[str]:
    """A label is GitHub's own, or the plan's, and then a pull request gets a hosted one whatever the plan says."""
    for name, job in file.jobs.items():
        label = job.get("runs-on")
        if label is not None and label != PLANNED_RUNNER and str(label) not in HOSTED:
            yield f"job {name} runs on {label}: use a hosted label, or exactly {PLANNED_RUNNER}"


def matrices(file: File) -> Iterator[str]:
    """A matrix is written down, or comes whole from the plan; then an empty one is left out by its job's `if`."""
    only_called = set(file.events) == {"workflow_call"}
    for name, job in file.jobs.items():
        matrix = job.get("strategy", {}).get("matrix")
        if not isinstance(matrix, str) or (only_called and len(file.jobs) == 1 and matrix == GIVEN_MATRIX):
            continue
        if not PLANNED_MATRIX.fullmatch(matrix):
            yield f"job {name}: a computed matrix is fromJSON of an output of the job plan, and nothing else"
        if "needs.plan.outputs.has_legs == 'true'" not in job.get("if", ""):
            yield f"job {name}: GitHub fails on an empty matrix; ask needs.plan.outputs.has_legs"


def required_check(file: File) -> Iterator[str]:
    """A workflow of several jobs ends in one job that always reports and takes exactly `success` and a green verdict."""
    if len(file.jobs) < 2 or set(file.events) == {"workflow_call"}:
        return
    job = file.jobs.get("verdict")
    if job is None:
        yield "there is no job `verdict` that can be the required check"
        return
    if job.get("if") != "always()":
        yield "the job verdict must say `if: always()`: a skipped check counts as passed"
    if "${{" in job.get("name", "${{"):
        yield "the job verdict needs a fixed name"
    needed, after = set(needs_of(job)), jobs_after(file, "verdict")
    if forgotten := set(file.jobs) - {"verdict"} - after - needed - conditional_jobs(file):
        yield f"the job verdict does not look at {', '.join(sorted(forgotten))}"
    steps = job.get("steps", [])
    if len(steps) != 1 or steps[0].get("run") != REQUIRED_SCRIPT or "if" in steps[0]:
        yield "the job verdict must run the one script that every workflow has"
        return
    environment = steps[0].get("env", {})
    if environment.get("NEEDS") != "${{ toJSON(needs) }}":
        yield "the job verdict must see the whole needs context"
    verdict = re.fullmatch(r"\$\{\{ needs\.([\w-]+)\.outputs\.verdict \}\}", environment.get("VERDICT", ""))
    if verdict is None or verdict[1] not in needed:
        yield "the job verdict must see the verdict of a job that it needs"


def caches(file: File) -> Iterator[str]:
    """Restored anywhere, saved on main only; keys hold the cache version; no prefix match; nothing executable from the plan's."""
    for where, step in file.steps():
        uses, given = step.get("uses", ""), step.get("with", {})
        if not uses.startswith("actions/cache"):
            continue
        if uses.startswith("actions/cache@"):
            yield f"{where}: actions/cache saves everywhere; use restore, and save on main"
        if "restore-keys" in given:
            yield f"{where}: restore-keys matches by prefix and restores what is stale"
        if "cache-version.txt" not in given.get("key", "") and given.get("key") != "${{ inputs.model-key }}":
            yield f"{where}: the key must hold .github/cache-version.txt"
        condition = step.get("if", "")
        if uses.startswith("actions/cache/save@"):
            safe = NOT_A_PULL_REQUEST in condition or "github.event_name == 'push'" in condition
            if ON_MAIN not in condition or not safe:
                yield f"{where}: a cache is saved on main only, and not for a pull request"


def artifact_names(file: File) -> Iterator[str]:
    """An upload's name holds the attempt, so that a second attempt neither collides nor hides."""
    for where, step in file.steps():
        if step.get("uses", "").startswith("actions/upload-artifact@"):
            name = step["with"].get("name", "")
            made = re.fullmatch(r"\$\{\{ steps\.([\w-]+)\.outputs\.artifact \}\}", name)
            if made is None and not name.endswith(".${{ github.run_attempt }}"):
                yield f"{where}: the artifact's name {name} does not end in the attempt"
            if "if-no-files-found" not in step["with"]:
                yield f"{where}: say what happens when there is nothing to upload"


def evidence_always(file: File) -> Iterator[str]:
    """Receipts and verdicts are uploaded whatever they say."""
    if file.name in ("certify/action.yml", "gate/action.yml"):
        uploads = [step for _, step in file.steps() if step.get("uses", "").startswith("actions/upload-artifact@")]
        if not uploads or any(not step.get("if", "").startswith("always()") for step in uploads):
            yield "evidence must be uploaded with `if: always()`"
    gate = file.jobs.get("gate")
    if gate is not None and gate.get("if") != "always()":
        yield "the job gate must say `if: always()`: what did not report must be named"


def shells(file: File) -> Iterator[str]:
    """Bash with pipefail everywhere: GitHub's default shell has none."""
    default = file.data.get("defaults", {}).get("run", {}).get("shell")
    if default != "bash" and any("run" in step for name, step in file.steps() if name.startswith("job")):
        yield "say `defaults: run: shell: bash`"
    for where, step in file.steps():
        if where.startswith("action") and "run" in step and step.get("shell") != "bash":
            yield f"{where}: say `shell: bash`"


def documented(file: File) -> Iterator[str]:
    """An action says what it does and what each input and output is; every input is used."""
    if "runs" not in file.data:
        return
    for kind in ("inputs", "outputs"):
        for name, entry in file.data.get(kind, {}).items():
            if not entry.get("description"):
                yield f"{kind[:-1]} {name} has no description"
            if kind == "inputs" and f"inputs.{name}" not in file.text:
                yield f"input {name} is not used"
    if not file.data.get("description"):
        yield "the action has no description"


RULES: tuple[Rule, ...] = (
    permissions,
    timeouts,
    no_forgiving,
    pinned,
    no_splicing,
    checkouts,
    concurrency,
    needs_fit,
    no_secrets_for_pull_requests,
    runners,
    matrices,
    required_check,
    caches,
    artifact_names,
    evidence_always,
    shells,
    documented,
)


def findings(file: File) -> list[str]:
    """All that is wrong with a file."""
    return [f"{file.name}: {rule.__name__}: {finding}" for rule in RULES for finding in rule(file)]
