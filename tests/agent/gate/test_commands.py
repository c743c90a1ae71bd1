"""`gate`, `statement` and `verify` as a workflow calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import VerdictInvalid
from agent.gate.evidence import Evidence
from agent.gate.reason import Cause, Reason
from agent.gate.verdict_file import SCHEMA_FILE, read_verdict, verdict_to_json, write_verdict
from agent.lanes.result import Status
from agent.receipt.receipt import Receipt
from agent.reporters.junit import render_junit
from agent.reporters.markdown import render_markdown
from matrixgen.canonical import digest_of, sha256_hex
from matrixgen.planfile import write_plan
from tests.agent.gate.kit import BASE, PLAN, complete, verdict_of, with_lane, write_all
from tests.agent.gate.test_collect import bundle

AGENT = Path(sys.executable).with_name("skippy-agent")
RED = with_lane(complete()[1], 1, status=Status.FAIL, problems=("second stage from cut 3: 1 | 2 <b>*_x_*</b> @all",))


def call(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run skippy-agent as a workflow step does, without the environment of the tests' own CI run."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "SKIPPY_", "GH_"))}
    return subprocess.run(
        [AGENT, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**clean, **(environment or {})},
    )


def run_environment(tmp_path: Path) -> dict[str, str]:
    """What GitHub sets in the gate's job."""
    return {
        "GITHUB_REPOSITORY": "mesh/llm",
        "GITHUB_RUN_ID": "700",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_SHA": BASE,
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "SKIPPY_NEEDS": '{"certify": {"result": "success"}}',
    }


def gate(tmp_path: Path, receipts: Sequence[Receipt], *more: str | Path) -> subprocess.CompletedProcess[str]:
    """Write plan and receipts, and judge them."""
    write_plan(PLAN, tmp_path / "plan.json")
    (tmp_path / "receipts").mkdir(exist_ok=True)
    write_all(receipts, tmp_path / "receipts")
    return call(
        "gate",
        "--plan",
        tmp_path / "plan.json",
        "--receipts",
        tmp_path / "receipts",
        "-o",
        tmp_path / "verdict.json",
        *more,
        environment=run_environment(tmp_path),
    )


@pytest.mark.parametrize(
    ("receipts", "code", "words"),
    [
        (complete(), 0, "verdict: green: 5 green of 5"),
        ((RED, *complete()[2:], complete()[0]), 1, "verdict: red (leg_failed): 1 red, 4 green of 5"),
        (complete()[1:], 4, "verdict: infra (leg_missing): 1 infra, 4 green of 5"),
        ((), 4, "verdict: infra (leg_missing): 5 infra of 5"),
    ],
    ids=["green", "red", "infra", "nothing"],
)
def test_gate_says_why_and_exits_accordingly(
    tmp_path: Path, receipts: Sequence[Receipt], code: int, words: str
) -> None:
    """Exit 0, 1 or 4; what is not green comes first; verdict.json and the summary say the same."""
    done = gate(tmp_path, receipts)
    assert (done.returncode, done.stderr) == (code, "")
    lines = done.stdout.splitlines()
    assert lines[-1].startswith(words)
    states = [line.split()[0] for line in lines[:-1] if not line.startswith(" ")]
    assert states == sorted(states, key=["red", "infra", "green"].index)
    verdict = read_verdict(tmp_path / "verdict.json")
    assert {0: "green", 1: "red", 4: "infra"}[code] == verdict.state
    assert verdict_to_json(verdict)["digest"] in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_gate_prints_json_alone(tmp_path: Path) -> None:
    """With --json standard output is the verdict and nothing else, and matches its schema."""
    from jsonschema import Draft202012Validator

    done = gate(tmp_path, [RED], "--json", "--junit", tmp_path / "junit.xml")
    data = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))).validate(data)
    assert data["counts"] == {"legs": 5, "green": 0, "red": 1, "infra": 4, "comparisons": RED.comparisons}
    assert ET.parse(tmp_path / "junit.xml").getroot().tag == "testsuites"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--needs", "{"], "needs"),
        (["--base-commit", "main"], "40 hex"),
        (["--plan", "missing.json"], "plan"),
        (["--receipts", "nowhere"], "folder of receipts"),
        (["--attempt", "0"], "attempt"),
    ],
)
def test_bad_input_exits_2_without_a_traceback(tmp_path: Path, arguments: list[str], words: str) -> None:
    """Bad input is one message on standard error; no verdict is written."""
    done = gate(tmp_path, complete(), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "verdict.json").exists()


def test_a_changed_plan_is_bad_input(tmp_path: Path) -> None:
    """A plan that lost a leg after it was written does not make a green."""
    write_plan(PLAN, tmp_path / "plan.json")
    data = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    data["legs"].pop()
    (tmp_path / "short.json").write_text(json.dumps(data), encoding="utf-8")
    done = gate(tmp_path, complete()[:-1], "--plan", tmp_path / "short.json")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_summary_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """The verdict stands without its summary, and the note says so."""
    done = gate(tmp_path, complete(), "--summary", tmp_path)
    assert done.returncode == 0
    assert "summary could not be written" in done.stderr


VERDICT_EDITS: dict[str, Any] = {
    "state": lambda data: data.update(state="green"),
    "reasons": lambda data: [leg.update(reasons=[], state="green") for leg in data["legs"]],
    "base": lambda data: data["context"].update(base_commit="c" * 40),
    "legs": lambda data: data["legs"].pop(),
    "time": lambda data: data["context"].update(certified_at="2027-01-01T00:00:00Z"),
    "field": lambda data: data.update(extra=1),
}


@pytest.mark.parametrize("honest_digest", [False, True])
@pytest.mark.parametrize("name", VERDICT_EDITS)
def test_an_edited_verdict_is_refused(tmp_path: Path, name: str, honest_digest: bool) -> None:
    """Without a fitting digest always; with one, where it contradicts itself (else only judging again can tell)."""
    path = tmp_path / "verdict.json"
    write_verdict(verdict_of([RED]), path)
    data = json.loads(path.read_text(encoding="utf-8"))
    VERDICT_EDITS[name](data)
    if honest_digest:
        data["digest"] = digest_of({key: value for key, value in data.items() if key != "digest"})
    path.write_text(json.dumps(data), encoding="utf-8")
    if honest_digest and name in ("base", "time"):
        assert read_verdict(path).state == "red"
        return
    with pytest.raises(VerdictInvalid):
        read_verdict(path)


@pytest.mark.parametrize("raw", [b"", b"null", b"[" * 100_000, b"\xff", b"{}"], ids=range(5))
def test_what_is_no_verdict_is_refused(tmp_path: Path, raw: bytes) -> None:
    """Broken files are one message."""
    (tmp_path / "verdict.json").write_bytes(raw)
    with pytest.raises(VerdictInvalid):
        read_verdict(tmp_path / "verdict.json")


def test_a_verdict_comes_back_as_it_was(tmp_path: Path) -> None:
    """Writing and reading lose nothing."""
    verdict = verdict_of([RED, *complete()[2:]], jobs={"certify": "failure"})
    write_verdict(verdict, tmp_path / "verdict.json")
    assert read_verdict(tmp_path / "verdict.json") == verdict


def test_markdown_shows_failures_first_and_nothing_comes_alive() -> None:
    """The red leg stands before the green ones, and text of a receipt stays text."""
    text = render_markdown(verdict_of([RED, complete()[0], *complete()[2:]]))
    assert text.startswith("## ❌ Verdict: red")
    assert text.index("mamba&#64;cuda") < text.index("<summary>4 green")
    assert "<b>*_x_*" not in text
    assert "@all" not in text
    assert "arcee" in text


@pytest.mark.parametrize("limit", [2**20, 20_000, 3_000])
def test_markdown_stays_within_the_limit(limit: int) -> None:
    """A verdict with far more than fits is cut at whole legs, the red ones kept longest, and the cut is counted."""
    verdict = verdict_of([RED, *complete()[2:]])
    reasons = (Reason(cause=Cause.LEG_FAILED, message="é" * 300),) * 20
    legs = tuple(replace(verdict.legs[1], leg=f"family-{number}@cpu", reasons=reasons) for number in range(400))
    text = render_markdown(replace(verdict, legs=legs), limit)
    assert len(text.encode()) <= limit
    assert "did not fit" in text
    assert text.count("<details>") == text.count("</details>")
    assert verdict.plan in text


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_reports_hold_any_text(text: str) -> None:
    """Any text a receipt may hold gives Markdown in UTF-8 and XML that parses."""
    receipt = with_lane(complete()[0], 0, status=Status.FAIL, problems=(text,))
    verdict = verdict_of([receipt, *complete()[1:]])
    assert render_markdown(verdict).encode()
    assert ET.fromstring(render_junit(verdict)).findall(".//failure")


def test_junit_counts_what_the_verdict_says() -> None:
    """A failed lane is a failure, a missing leg an error, a foreign receipt a failure of the run, nothing is skipped."""
    verdict = verdict_of([RED, replace(complete()[0], leg="stranger@cpu")], jobs={"certify": "cancelled"})
    root = ET.fromstring(render_junit(verdict))
    suites = {suite.get("name"): suite for suite in root}
    assert (suites[RED.leg].get("tests"), suites[RED.leg].get("failures"), suites[RED.leg].get("errors")) == (
        "3",
        "1",
        "0",
    )
    assert suites["mamba2@cpu"].get("errors") == "5"
    assert suites["run"].get("failures") == "1"
    assert not root.findall(".//skipped")


def test_statements_are_in_toto_and_verified(tmp_path: Path) -> None:
    """`statement` writes statement and predicate, the in-toto fields are there, and `verify` holds them against the files."""
    gate(tmp_path, complete())
    receipts = sorted((tmp_path / "receipts").rglob("receipt.json"))
    assert call("statement", *receipts, tmp_path / "verdict.json").returncode == 0
    made = json.loads((tmp_path / "verdict.json.statement.json").read_text(encoding="utf-8"))
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert made["predicate"]["result"] == "PASSED"
    assert made["predicate"]["passedTests"] == [leg.id for leg in PLAN.legs]
    assert made["predicate"]["url"].endswith("/mesh/llm/actions/runs/700")
    predicate = json.loads((tmp_path / "verdict.json.predicate.json").read_text(encoding="utf-8"))
    assert predicate == made["predicate"]
    done = verify(tmp_path)
    assert done.returncode == 0
    assert "not checked: certificates and signatures" in done.stdout

    made["predicate"]["result"] = "FAILED"
    (tmp_path / "verdict.json.statement.json").write_text(json.dumps(made), encoding="utf-8")
    done = verify(tmp_path)
    assert done.returncode == 1
    assert "does not say what verdict.json says" in done.stdout.splitlines()[0]


def verify(tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Verify everything that `gate` left."""
    paths = (
        "--plan",
        tmp_path / "plan.json",
        "--receipts",
        tmp_path / "receipts",
        "--verdict",
        tmp_path / "verdict.json",
    )
    return call("verify", *paths, *more)


def test_a_failed_receipt_has_a_failed_statement(tmp_path: Path) -> None:
    """A lane that did not pass is among the failed tests, and the result is FAILED."""
    write_all([RED], tmp_path)
    path = next(tmp_path.rglob("receipt.json"))
    assert call("statement", path).returncode == 0
    made = json.loads(path.with_name("receipt.json.predicate.json").read_text(encoding="utf-8"))
    assert (made["result"], made["failedTests"]) == ("FAILED", [f"{RED.leg}/determinism"])


def test_verify_judges_again(tmp_path: Path) -> None:
    """A verdict that other receipts were used for does not hold, even with a digest that fits."""
    gate(tmp_path, complete())
    assert verify(tmp_path).returncode == 0
    write_all([RED], tmp_path / "receipts")
    done = verify(tmp_path, "--json")
    assert done.returncode == 1
    wrong = [check["name"] for check in json.loads(done.stdout)["checks"] if check["problem"]]
    assert wrong == ["verdict.json: judged again"]


def test_verify_wants_signatures_where_asked(tmp_path: Path) -> None:
    """--require-signature names every receipt without a bundle, and is content once all have one."""
    gate(tmp_path, complete())
    assert verify(tmp_path, "--require-signature").returncode == 1
    from hashlib import sha256

    for path in (tmp_path / "receipts").rglob("receipt.json"):
        text = json.dumps(bundle(sha256(path.read_bytes()).hexdigest()))
        path.with_name("receipt.json.sigstore.json").write_text(text)
    assert verify(tmp_path, "--require-signature").returncode == 0


def test_verify_checks_the_age(tmp_path: Path) -> None:
    """[G16] A verdict of nine days ago does not hold where a day is allowed."""
    gate(tmp_path, complete())
    assert verify(tmp_path, "--max-age", "24").returncode == 0
    old = replace(verdict_of(complete()).context, certified_at="2026-11-20T12:00:00+00:00")
    write_verdict(replace(verdict_of(complete()), context=old), tmp_path / "verdict.json")
    done = verify(tmp_path, "--max-age", "24")
    assert done.returncode == 1
    assert "hours old" in done.stdout


@pytest.mark.parametrize(
    "arguments", [[], ["--verdict", "nothing.json", "--require-signature"]], ids=["nothing", "signature-of-nothing"]
)
def test_verify_without_an_object_is_bad_input(tmp_path: Path, arguments: list[str]) -> None:
    """Nothing to verify is not a success."""
    write_plan(PLAN, tmp_path / "plan.json")
    assert call("verify", "--plan", tmp_path / "plan.json", *arguments).returncode == 2


def test_an_empty_folder_does_not_hold(tmp_path: Path) -> None:
    """No receipt at all is a problem, not an empty list of checks."""
    write_plan(PLAN, tmp_path / "plan.json")
    (tmp_path / "receipts").mkdir()
    done = call("verify", "--plan", tmp_path / "plan.json", "--receipts", tmp_path / "receipts")
    assert done.returncode == 1
    assert "no receipt at all" in done.stdout


def test_statement_of_something_else_is_bad_input(tmp_path: Path) -> None:
    """A file that is neither a receipt nor a verdict has no statement."""
    (tmp_path / "x.json").write_text("{}")
    done = call("statement", tmp_path / "x.json")
    assert done.returncode == 2
    assert not (tmp_path / "x.json.statement.json").exists()


def test_the_schema_knows_every_cause() -> None:
    """The schema of verdict.json and the code name the same causes."""
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    assert schema["$defs"]["cause"]["enum"] == [cause.value for cause in Cause]
    assert Evidence(receipts=()).refused == ()


LISTS = {"contents.json": "files", "build.json": "members"}


def write_builds(folder: Path, name: str = "contents.json", /, **changes: object) -> None:
    """The lists of the builds, one a build."""
    for build in PLAN.builds:
        path = folder / build.artifact / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files = [{"path": "lib/libllama.so", "size": 1, "sha256": sha256_hex(build.key)}, {"path": "l", "link": "lib"}]
        path.write_text(json.dumps({"schema_version": 1, "key": build.key, LISTS[name]: files, **changes}))


@pytest.mark.parametrize("name", LISTS)
def test_gate_traces_libraries_to_builds(tmp_path: Path, name: str) -> None:
    """With --builds the verdict says that the libraries are the builds'; without, that nobody looked."""
    assert "not checked: that the libraries" in gate(tmp_path, complete()).stdout
    write_builds(tmp_path / "builds", name)
    done = gate(tmp_path, complete(), "--builds", tmp_path / "builds")
    assert (done.returncode, "not checked" in done.stdout) == (0, False)
    assert read_verdict(tmp_path / "verdict.json").context.builds_checked
    write_builds(tmp_path / "builds", name, **{LISTS[name]: [{"path": "x", "size": 1, "sha256": "0" * 64}]})
    done = gate(tmp_path, complete(), "--builds", tmp_path / "builds")
    assert (done.returncode, "wrong_build" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"key": None},
        {"key": ""},
        {"files": []},
        {"files": "x"},
        {"files": [{"path": "a", "sha256": 5}]},
        {"files": [5]},
        None,
    ],
    ids=repr,
)
def test_lists_of_builds_that_are_none_are_bad_input(tmp_path: Path, changes: dict[str, object] | None) -> None:
    """A folder without lists, or with a broken one, is never taken for checked."""
    (tmp_path / "builds").mkdir()
    if changes is not None:
        write_builds(tmp_path / "builds", **changes)
    done = gate(tmp_path, complete(), "--builds", tmp_path / "builds")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
