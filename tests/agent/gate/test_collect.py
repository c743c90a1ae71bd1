"""A folder of receipts that nobody vouches for never stops the gate with a traceback, and never passes for good."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ReceiptsUnreadable
from agent.gate import collect as collecting
from agent.gate.collect import collect
from agent.gate.reason import Cause
from agent.gate.signature import bundle_problem
from agent.receipt.receipt import write_receipt
from matrixgen.canonical import digest_of
from tests.agent.gate.kit import PLAN, complete, receipt_of


def one(folder: Path) -> Path:
    """A good receipt in its usual place."""
    return write_receipt(receipt_of(PLAN.legs[0]), folder)


def edited(path: Path, change: Callable[[dict[str, Any]], object], *, honest_digest: bool) -> None:
    """Change the JSON of a receipt, with or without a digest that fits again."""
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    if honest_digest:
        data["digest"] = digest_of({key: value for key, value in data.items() if key != "digest"})
    path.write_text(json.dumps(data), encoding="utf-8")


def test_good_receipts_are_read_with_the_digest_of_their_bytes(tmp_path: Path) -> None:
    """Every receipt at any depth, in the order of its place; other files are left alone."""
    for receipt in complete():
        write_receipt(receipt, tmp_path / "artifact")
    (tmp_path / "notes.txt").write_text("x")
    evidence = collect(tmp_path)
    assert evidence.refused == ()
    assert [entry.receipt for entry in evidence.receipts] == sorted(complete(), key=lambda receipt: receipt.leg)
    assert all(len(entry.sha256) == 64 and entry.unsigned for entry in evidence.receipts)


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "status": lambda data: data.update(status="fail"),
    "comparisons": lambda data: data["lanes"][0].update(comparisons=999),
    "lane": lambda data: data["lanes"].pop(),
    "sha256": lambda data: data["subject"]["files"][0].update(sha256="0" * 64),
    "log": lambda data: data.update(log="!"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found_by_the_digest(tmp_path: Path, name: str) -> None:
    """A receipt whose content and digest do not fit is called edited."""
    edited(one(tmp_path), EDITS[name], honest_digest=False)
    (refused,) = collect(tmp_path).refused
    assert refused.cause is Cause.RECEIPT_EDITED


INVALID: dict[str, Callable[[dict[str, Any]], object]] = {
    "status-against-lanes": lambda data: data.update(status="infra"),
    "pass-without-comparisons": lambda data: data["lanes"][0].update(comparisons=0),
    "pass-with-problems": lambda data: data["lanes"][0].update(problems=["x"]),
    "no-lanes": lambda data: data.update(lanes=[]),
    "unknown-field": lambda data: data.update(extra=1),
    "missing-field": lambda data: data.pop("engine"),
    "negative": lambda data: data["lanes"][0].update(comparisons=-1),
    "fraction": lambda data: data["lanes"][0].update(comparisons=7.0),
    "astronomic": lambda data: data["lanes"][0].update(comparisons=10**4000),
    "long-seconds": lambda data: data["lanes"][0].update(seconds=10**4000),
    "other-version": lambda data: data.update(schema_version=2),
    "number-as-leg": lambda data: data.update(leg=5),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_receipt_with_a_good_digest_is_refused(tmp_path: Path, name: str) -> None:
    """The digest is no excuse: schema, status and counts are checked as well."""
    edited(one(tmp_path), INVALID[name], honest_digest=True)
    evidence = collect(tmp_path)
    assert evidence.receipts == ()
    assert [refused.cause for refused in evidence.refused] == [Cause.RECEIPT_INVALID]


RAW: dict[str, bytes] = {
    "empty": b"",
    "truncated": b'{"schema_version": 1, "leg":',
    "null": b"null",
    "list": b"[]",
    "deep-list": b"[" * 100_000,
    "deep-object": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "deep-family": b'{"digest": "x", "family": ' + b"[" * 900 + b"]" * 900 + b"}",
    "utf-16": '{"leg": "a"}'.encode("utf-16"),
    "latin-1": b'{"leg": "\xe9"}',
    "bom": b'\xef\xbb\xbf{"leg": "a"}',
    "nan": b'{"seconds": NaN}',
    "infinity": b'{"seconds": -Infinity}',
    "overflow": b'{"seconds": 1e999}',
    "key-twice": b'{"leg": "a", "leg": "b"}',
    "long-number": b'{"n": ' + b"9" * 5000 + b"}",
    "surrogate": b'{"leg": "\\ud800", "digest": "x"}',
    "nul": b"\0" * 100,
    "quotes": b'"' * 300_000,
    "escapes": b'"\\"' * 100_000,
}


@pytest.mark.parametrize("name", RAW)
def test_bytes_that_are_no_receipt_are_refused(tmp_path: Path, name: str) -> None:
    """Broken, deep, wrongly encoded and ambiguous JSON becomes a finding."""
    (tmp_path / "receipt.json").write_bytes(RAW[name])
    evidence = collect(tmp_path)
    assert evidence.receipts == ()
    assert [refused.cause for refused in evidence.refused] in ([Cause.RECEIPT_INVALID], [Cause.RECEIPT_EDITED])


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """Links (to good receipts as well), folders and pipes are never read."""
    one(tmp_path / "real")
    folder = tmp_path / "receipts"
    (folder / "linked").mkdir(parents=True)
    (folder / "linked" / "receipt.json").symlink_to(next((tmp_path / "real").rglob("receipt.json")))
    (folder / "folder" / "receipt.json").mkdir(parents=True)
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "receipt.json")
    (folder / "loop").symlink_to(folder)
    evidence = collect(folder)
    assert evidence.receipts == ()
    assert {refused.cause for refused in evidence.refused} == {Cause.RECEIPT_UNREADABLE}
    assert len(evidence.refused) == 3


def test_a_huge_receipt_is_not_read(tmp_path: Path) -> None:
    """One byte above the limit is refused without parsing."""
    path = tmp_path / "receipt.json"
    with path.open("wb") as file:
        file.truncate(collecting.MAX_RECEIPT_BYTES + 1)
    (refused,) = collect(tmp_path).refused
    assert "more than" in refused.message


@pytest.mark.parametrize("limit", ["MAX_RECEIPTS", "MAX_ENTRIES", "MAX_TOTAL_BYTES", "_MAX_FOLDERS"])
def test_more_than_a_run_can_make_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Thousands of files, bytes or levels of folders end with one message that names the limit."""
    for receipt in complete():
        write_receipt(receipt, tmp_path / "a" / "b")
    collect(tmp_path)
    monkeypatch.setattr(collecting, limit, 2)
    with pytest.raises(ReceiptsUnreadable, match="more than 2"):
        collect(tmp_path)


@pytest.mark.parametrize("kind", ["missing", "file", "link"])
def test_a_folder_that_is_none_is_bad_input(tmp_path: Path, kind: str) -> None:
    """No folder is not the same as an empty one."""
    path = tmp_path / "receipts"
    if kind == "file":
        path.write_text("x")
    elif kind == "link":
        path.symlink_to(tmp_path)
    with pytest.raises(ReceiptsUnreadable):
        collect(path)


def bundle(sha256: str, **changes: Any) -> dict[str, Any]:
    """A signature bundle as actions/attest writes it; the signature is not one."""
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "r", "digest": {"sha256": sha256}}]}
    return {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"certificate": {"rawBytes": "AAAA"}},
        "dsseEnvelope": {
            "payload": base64.b64encode(json.dumps(statement).encode()).decode(),
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": "AAAA"}],
        },
        **changes,
    }


def test_a_bundle_beside_a_receipt_counts(tmp_path: Path) -> None:
    """A bundle for exactly these bytes, alone or among others a line each, makes a receipt signed."""
    path = one(tmp_path)
    (entry,) = collect(tmp_path).receipts
    lines = [bundle("0" * 64), bundle(entry.sha256)]
    for text in (json.dumps(lines[1], indent=1), "\n".join(map(json.dumps, lines))):
        path.with_name("receipt.json.sigstore.json").write_text(text)
        assert collect(tmp_path).receipts[0].unsigned is None
    path.write_bytes(path.read_bytes() + b"\n")
    assert collect(tmp_path).receipts[0].unsigned == "its signature bundle is about other bytes"


GOOD = bundle("a" * 64)
BUNDLES: dict[str, bytes | None] = {
    "absent": None,
    "empty": b"",
    "huge": b" " * (2**20 + 1),
    "not-json": b"signed, honestly",
    "list": b"[]",
    "deep": b"[" * 100_000,
    "other-bytes": json.dumps(bundle("b" * 64)).encode(),
    "no-envelope": json.dumps({**GOOD, "dsseEnvelope": None}).encode(),
    "no-signature": json.dumps({**GOOD, "dsseEnvelope": {**GOOD["dsseEnvelope"], "signatures": []}}).encode(),
    "empty-signature": json.dumps(
        {**GOOD, "dsseEnvelope": {**GOOD["dsseEnvelope"], "signatures": [{"sig": ""}]}}
    ).encode(),
    "no-certificate": json.dumps({**GOOD, "verificationMaterial": {}}).encode(),
    "other-media-type": json.dumps({**GOOD, "mediaType": "application/json"}).encode(),
    "other-payload-type": json.dumps({**GOOD, "dsseEnvelope": {**GOOD["dsseEnvelope"], "payloadType": "x"}}).encode(),
    "payload-not-base64": json.dumps({**GOOD, "dsseEnvelope": {**GOOD["dsseEnvelope"], "payload": "%%"}}).encode(),
    "latin-1": b"\xff\xfe",
}


@pytest.mark.parametrize("name", BUNDLES)
def test_what_is_no_bundle_says_why(name: str) -> None:
    """Every malformed bundle is named; the well-formed one is taken."""
    assert bundle_problem(BUNDLES[name], "a" * 64)
    assert bundle_problem(json.dumps(GOOD).encode(), "a" * 64) is None
