"""A receipt says what was seen, and nobody can change it afterwards without being noticed."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ReceiptInvalid
from agent.lanes.result import LaneResult, Status
from agent.receipt import receipt as receipts
from agent.receipt.receipt import Receipt, read_receipt, write_receipt
from agent.receipt.surroundings import describe_run, describe_runner
from matrixgen.canonical import digest_of
from matrixgen.errors import CannotWrite

DIGEST = "sha256:" + "a" * 64


def lane(name: str = "chain", status: Status = Status.PASS) -> LaneResult:
    """A lane with this outcome."""
    problems = () if status is Status.PASS else ("cut 4: differs",)
    return LaneResult(
        lane=name,
        status=status,
        comparisons=7 if status is Status.PASS else 0,
        summary="split at 3, 5 — equal",
        problems=problems,
        notes=("a note",),
        measurements={"cuts": [3, 5], "max_error": 0.0, "generated": {"deep": [1, None, True]}},
        seconds=0.25,
    )


def receipt(*lanes: LaneResult, **changes: Any) -> Receipt:
    """A whole receipt."""
    fields: dict[str, Any] = {
        "leg": "qwen3-dense@cpu",
        "plan": DIGEST,
        "event": "llama-bump",
        "family": {"family": "qwen3-dense", "arch": "qwen3"},
        "pin": {"commit": "0" * 40},
        "build_key": "build-1",
        "subject": receipts.TestedSubject(
            kind="twin",
            architecture="qwen3",
            files=(receipts.TestedFile(name="qwen3.gguf", size=12, sha256="b" * 64),),
            recipe="c" * 64,
            proves="the graph",
            does_not_prove="the weights",
        ),
        "engine": {"version": "0.5.0", "libraries": {"libllama.so": "d" * 64}},
        "device": {"name": "CPU", "description": "a processor", "backend": "cpu"},
        "nodes_by_device": {"CPU": 254},
        "agent": "0.1.0",
        "runner": describe_runner(),
        "run": {"run_id": "7", "attempt": "1"},
        "started_at": "2026-11-29T18:00:00+00:00",
        "finished_at": "2026-11-29T18:00:09Z",
        "lanes": lanes or (lane("inspect"), lane("chain")),
        "log": "ggml says ünïcode \x1b[31m\n",
    }
    return Receipt(**(fields | changes))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The file of a sound receipt."""
    return write_receipt(receipt(), tmp_path)


def test_a_receipt_is_read_as_it_was_written(tmp_path: Path) -> None:
    """All fields survive, and the file lies where its leg says."""
    whole = receipt()
    path = write_receipt(whole, tmp_path)
    assert path == tmp_path / "qwen3-dense@cpu" / "receipt.json"
    assert read_receipt(path) == whole
    assert read_receipt(path).to_json() == json.loads(path.read_text(encoding="utf-8")) == whole.to_json()


def test_writing_again_replaces_the_receipt_and_leaves_nothing_else(tmp_path: Path) -> None:
    """An unfinished receipt is replaced by the finished one, whole."""
    write_receipt(receipt(lane(status=Status.INFRA)), tmp_path)
    path = write_receipt(receipt(), tmp_path)
    assert read_receipt(path).status is Status.PASS
    assert [entry.name for entry in path.parent.iterdir()] == ["receipt.json"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of a document with another value at `path`; `...` takes the value away."""
    document = copy.deepcopy(data)
    target = document
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return document


def other(value: Any) -> Any:
    """Another value of the same type, so that it is the digest that must notice."""
    if isinstance(value, bool) or value is None:
        return "x"
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1") if value else "x"
    if isinstance(value, int | float):
        return value + 1
    return [*value, "x"] if isinstance(value, list) else {**value, "x": "x"}


PLACES = sorted(places(receipt().to_json()), key=str)


@pytest.mark.parametrize("path", PLACES, ids=lambda path: "/".join(map(str, path)))
@pytest.mark.parametrize("way", ["edited", "removed"])
def test_every_change_is_refused(written: Path, path: tuple[Any, ...], way: str) -> None:
    """Whatever is edited or taken away, deep inside too, by digest or by schema."""
    data = json.loads(written.read_text(encoding="utf-8"))
    value = data
    for key in path:
        value = value[key]
    edited = changed(data, path, other(value) if way == "edited" else ...)
    assert edited != data
    written.write_text(json.dumps(edited), encoding="utf-8")
    with pytest.raises(ReceiptInvalid) as refusal:
        read_receipt(written)
    assert str(written) in str(refusal.value)


def signed(data: dict[str, Any]) -> dict[str, Any]:
    """A document with the digest that fits it: somebody who edits may also compute a digest."""
    body = {key: value for key, value in data.items() if key != "digest"}
    return {**body, "digest": digest_of(body)}


VIOLATIONS = [
    (("schema_version",), 2, "$.schema_version"),
    (("leg",), "Qwen 3", "$.leg"),
    (("leg",), "../../etc@cpu", "$.leg"),
    (("plan",), "sha256:abc", "$.plan"),
    (("event",), 3, "$.event"),
    (("family",), {"family": "x"}, "'arch' is a required property"),
    (("pin",), None, "$.pin"),
    (("build_key",), 1, "$.build_key"),
    (("subject", "kind"), "rumour", "$.subject.kind"),
    (("subject", "files", 0, "sha256"), "xyz", "$.subject.files[0].sha256"),
    (("subject", "files", 0, "size"), -1, "$.subject.files[0].size"),
    (("subject", "extra"), 1, "extra"),
    (("nodes_by_device", "CPU"), -1, "$.nodes_by_device.CPU"),
    (("run", "run_id"), 7, "$.run.run_id"),
    (("started_at",), "yesterday", "$.started_at"),
    (("finished_at",), "2026-11-29T18:00:09+02:00", "$.finished_at"),
    (("lanes",), [], "$.lanes"),
    (("lanes", 0, "lane"), "Chain!", "$.lanes[0].lane"),
    (("lanes", 0, "status"), "green", "$.lanes[0].status"),
    (("lanes", 0, "comparisons"), 0, "$.lanes[0].comparisons"),
    (("lanes", 0, "comparisons"), -1, "$.lanes[0].comparisons"),
    (("lanes", 0, "problems"), ["but"], "$.lanes[0].problems"),
    (("lanes", 0, "status"), "fail", "$.lanes[0].problems"),
    (("lanes", 0, "seconds"), -0.5, "$.lanes[0].seconds"),
    (("lanes", 0, "extra"), 1, "extra"),
    (("lanes", 0, "summary"), ..., "'summary' is a required property"),
    (("log",), None, "$.log"),
    (("status",), "green", "$.status"),
    (("extra",), 1, "extra"),
]


@pytest.mark.parametrize(("path", "value", "words"), VIOLATIONS)
def test_a_violation_of_the_schema_is_named(written: Path, path: tuple[Any, ...], value: Any, words: str) -> None:
    """Even with a digest that fits: the place and what is wrong there."""
    data = changed(json.loads(written.read_text(encoding="utf-8")), path, value)
    written.write_text(json.dumps(signed(data)), encoding="utf-8")
    with pytest.raises(ReceiptInvalid) as refusal:
        read_receipt(written)
    assert "does not match the schema" in str(refusal.value)
    assert words in str(refusal.value)


def test_all_violations_are_named_at_once(written: Path) -> None:
    """Two wrong fields, two lines."""
    data = changed(changed(json.loads(written.read_text(encoding="utf-8")), ("plan",), "x"), ("event",), 1)
    written.write_text(json.dumps(signed(data)), encoding="utf-8")
    with pytest.raises(ReceiptInvalid) as refusal:
        read_receipt(written)
    assert "$.plan" in str(refusal.value)
    assert "$.event" in str(refusal.value)


@pytest.mark.parametrize("status", ["pass", "infra"])
def test_a_status_that_its_lanes_do_not_give_is_refused(tmp_path: Path, status: str) -> None:
    """A fail cannot be signed into a pass."""
    path = write_receipt(receipt(lane(), lane("inspect", Status.FAIL)), tmp_path)
    data = json.loads(path.read_text(encoding="utf-8")) | {"status": status}
    path.write_text(json.dumps(signed(data)), encoding="utf-8")
    with pytest.raises(ReceiptInvalid, match=f"says {status}, its lanes say fail"):
        read_receipt(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b"<html>not found</html>",
        b'{"a": 1' + b"0" * 5000 + b"}",
    ],
    ids=["empty", "cut", "null", "list", "not-utf-8", "deep", "html", "huge-number"],
)
def test_what_is_no_receipt_is_refused(tmp_path: Path, content: bytes) -> None:
    """With the path and what to do, and never with another exception."""
    path = tmp_path / "receipt.json"
    path.write_bytes(content)
    with pytest.raises(ReceiptInvalid, match=r"receipt\.json"):
        read_receipt(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused(written: Path, number: str) -> None:
    """Python reads them; no other reader of a receipt would."""
    text = written.read_text(encoding="utf-8").replace('"max_error": 0.0', f'"max_error": {number}')
    assert number in text
    written.write_text(text, encoding="utf-8")
    with pytest.raises(ReceiptInvalid):
        read_receipt(written)


def test_a_missing_receipt_is_refused(tmp_path: Path) -> None:
    """A path that is not there, and one that is a folder."""
    for path in (tmp_path / "receipt.json", tmp_path):
        with pytest.raises(ReceiptInvalid):
            read_receipt(path)


@given(st.lists(st.sampled_from(Status), min_size=1, max_size=8))
def test_only_passes_make_a_pass(statuses: list[Status]) -> None:
    """Any mixture with another status is red or infra; a fail outranks what could not run."""
    whole = receipt(*(lane(f"lane-{number}", status) for number, status in enumerate(statuses)))
    if set(statuses) == {Status.PASS}:
        assert whole.status is Status.PASS
    elif Status.FAIL in statuses:
        assert whole.status is Status.FAIL
    else:
        assert whole.status is Status.INFRA


def test_a_receipt_without_lanes_is_no_pass_and_cannot_be_written(tmp_path: Path) -> None:
    """Nothing owed and nothing run is not green."""
    empty = Receipt(**{**receipt().__dict__, "lanes": ()})
    assert empty.status is not Status.PASS
    with pytest.raises(ReceiptInvalid, match=r"\$\.lanes"):
        write_receipt(empty, tmp_path)
    assert not list(tmp_path.rglob("receipt.json"))


@given(
    status=st.sampled_from(Status), comparisons=st.integers(0, 3), problems=st.lists(st.text(max_size=5), max_size=2)
)
def test_a_lane_that_contradicts_itself_cannot_be_written(
    tmp_path_factory: pytest.TempPathFactory, status: Status, comparisons: int, problems: list[str]
) -> None:
    """A pass compared something and has no problem; anything else says why."""
    made = LaneResult(lane="chain", status=status, comparisons=comparisons, summary="", problems=tuple(problems))
    sound = (comparisons > 0 and not problems) if status is Status.PASS else bool(problems)
    folder = tmp_path_factory.getbasetemp() / "contradictions"
    if sound:
        assert read_receipt(write_receipt(receipt(made), folder)).lanes == (made,)
        return
    with pytest.raises(ReceiptInvalid):
        write_receipt(receipt(made), folder)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Where a file lies in the way, the message says so and what to do; nothing is written."""
    blocked = tmp_path / "receipts"
    blocked.write_text("a file", encoding="utf-8")
    with pytest.raises(CannotWrite, match="receipts"):
        write_receipt(receipt(), blocked)
    assert blocked.read_text(encoding="utf-8") == "a file"


def test_the_run_is_read_from_the_environment_of_github() -> None:
    """Repository, commit, workflow, run, attempt, job and runner; nothing else, and nothing that is empty."""
    environment = {
        "GITHUB_REPOSITORY": "owner/repo",
        "GITHUB_SHA": "1" * 40,
        "GITHUB_WORKFLOW_REF": "owner/repo/.github/workflows/canary.yml@refs/heads/main",
        "GITHUB_RUN_ID": "123",
        "GITHUB_RUN_ATTEMPT": "2",
        "GITHUB_JOB": "certify",
        "RUNNER_NAME": "gpu-box",
        "GITHUB_TOKEN": "ghs_secret",
        "HF_TOKEN": "hf_secret",
        "PATH": "bin",
    }
    assert describe_run(environment) == {
        "repository": "owner/repo",
        "sha": "1" * 40,
        "workflow": "owner/repo/.github/workflows/canary.yml@refs/heads/main",
        "run_id": "123",
        "attempt": "2",
        "job": "certify",
        "runner_name": "gpu-box",
    }
    assert describe_run({"GITHUB_RUN_ID": "", "HOME": "x"}) == {}


def test_the_runner_is_described_without_what_could_be_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """System, processor, cores, memory and Python; no name of a host or a user, nothing of the environment."""
    for name in list(os.environ):
        if "TOKEN" in name or "SECRET" in name:
            monkeypatch.delenv(name)
    monkeypatch.setenv("MY_SECRET", "hunter2-0451")
    described = describe_runner()
    assert set(described) == {"os", "machine", "processor", "cores", "memory_bytes", "python"}
    assert described["cores"] >= 1
    assert described["memory_bytes"] is None or described["memory_bytes"] > 2**27
    assert "hunter2-0451" not in json.dumps(described)
