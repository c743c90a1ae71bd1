"""in-toto statements of what was tested: a test-result predicate about a file, ready for `actions/attest`.

Sources: Statement v1 and the predicate test-result v0.1 of the in-toto attestation framework. A statement proves nothing by
itself; signed, it says who claims it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.receipt.receipt import Receipt

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"


def statement(name: str, sha256: str, predicate: Mapping[str, Any]) -> dict[str, Any]:
    """The statement that `predicate` holds for the file `name` with digest `sha256` (64 hex)."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": dict(predicate),
    }


def result_predicate(
    *, passed: Iterable[str], failed: Iterable[str], configuration: Iterable[Mapping[str, Any]], green: bool, url: str
) -> dict[str, Any]:
    """The predicate. `configuration` holds resource descriptors; `url` is the run's page, left out where it is empty."""
    failures = list(failed)
    return {
        "result": "PASSED" if green and not failures else "FAILED",
        "configuration": [dict(entry) for entry in configuration],
        **({"url": url} if url else {}),
        "passedTests": list(passed),
        "warnedTests": [],
        "failedTests": failures,
    }


def descriptor(name: str, digest: str, algorithm: str = "sha256") -> dict[str, Any]:
    """A resource descriptor; a ``sha256:`` in front of the digest is dropped."""
    return {"name": name, "digest": {algorithm: digest.removeprefix("sha256:")}}


def receipt_predicate(receipt: Receipt) -> dict[str, Any]:
    """What a receipt says: each lane a test. A lane that could not run did not pass, so it counts as failed."""
    found = receipt.engine.get("libraries")
    libraries = found if isinstance(found, dict) else {}
    return result_predicate(
        passed=[f"{receipt.leg}/{lane.lane}" for lane in receipt.lanes if lane.status == "pass"],
        failed=[f"{receipt.leg}/{lane.lane}" for lane in receipt.lanes if lane.status != "pass"],
        configuration=[
            descriptor("plan.json", receipt.plan),
            descriptor("llama.cpp", str(receipt.pin.get("commit", "")), "gitCommit"),
            *(descriptor(file.name, file.sha256) for file in receipt.subject.files),
            *(descriptor(name, str(digest)) for name, digest in sorted(libraries.items())),
        ],
        green=receipt.status == "pass",
        url=run_url(receipt.run.get("repository"), receipt.run.get("run_id")),
    )


def run_url(repository: str | None, run_id: str | None) -> str:
    """Page of a workflow run; empty where there is none."""
    return f"https://github.com/{repository}/actions/runs/{run_id}" if repository and run_id else ""
