"""The build of a plan: found by its key in a folder, an S3 store or the artifacts of a run, and verified before it is used."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.binding.layout import Layout, machine_name
from agent.build.headers import layout_of_checkout
from agent.build.ticket import BuildTicket, ticket_name
from matrixgen.leg import Build, Plan
from matrixgen.manifest import load_manifest
from matrixgen.plan import build_plan, write_plan
from tests.agent.build.kit import pack_build, pack_installed, skippy
from tests.agent.store.test_github import RUN, GitHub, archive, github
from tests.agent.store.test_s3 import BIN, connect, free_ports, running

__all__ = ["github"]  # a fixture

LAYOUT = Layout(structs={}, source="headers", machine=machine_name())


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test has a store of its own, and credentials of nobody."""
    monkeypatch.setenv("SKIPPY_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("SKIPPY_STORE_FLOOR", "0")
    monkeypatch.delenv("SKIPPY_SOURCES", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """One leg on a twin, on the CPU."""
    made = build_plan(load_manifest(), event="nightly", families=["qwen3-dense"], backends=["cpu"], subject="twin")
    write_plan(made, tmp_path / "plan.json")
    return made


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that speaks S3."""
    folder = tmp_path_factory.mktemp("s3")
    (port,) = free_ports(1)
    (folder / "data").mkdir()
    command = [str(BIN / "rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", "key,secret"]
    with running([*command, str(folder / "data")], f"http://127.0.0.1:{port}", folder / "log") as endpoint:
        yield endpoint


def shelve(tmp_path: Path, plan: Plan, **changes: Any) -> Path:
    """A folder with a small build of the plan and its ticket; `changes` are fields of its record."""
    folder, shelf = tmp_path / "made", tmp_path / "shelf"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lib").mkdir(parents=True)
    shelf.mkdir(exist_ok=True)
    (folder / "lib/libggml-cpu.so").write_bytes(b"not a library")
    fields = {"key": plan.builds[0].key, "commit": plan.pin.commit, "needed": {}, **changes}
    pack_build(folder, shelf / "llama.tar", fields.pop("layout", LAYOUT), **fields)
    BuildTicket.of(shelf / "llama.tar", plan.builds[0].key).write(shelf)
    return shelf


def fetch(tmp_path: Path, *options: object) -> Any:
    """`fetch --builds` of the plan."""
    return skippy("fetch", "--plan", tmp_path / "plan.json", "--builds", *options)


def test_build_leaves_a_ticket(tmp_path: Path, checkout: Path, plan: Plan) -> None:
    """`build --plan --key` leaves beside the archive what finds it: key, name, size and digest; without a key there is none."""
    key = plan.builds[0].key
    arguments = ("--plan", tmp_path / "plan.json", "--llama-src", checkout)
    assert skippy("build", *arguments, "--key", key, "-o", tmp_path / "out/llama.tar").code == 0
    data = (tmp_path / "out/llama.tar").read_bytes()
    assert json.loads((tmp_path / "out" / f"{plan.builds[0].artifact}.json").read_bytes()) == {
        "key": key,
        "file": "llama.tar",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    assert fetch(tmp_path, "--source", tmp_path / "out").code == 0
    assert skippy("build", "--llama-src", checkout, "--backend", "cpu", "-o", tmp_path / "other/a.tar").code == 0
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["a.tar"]


def test_a_folder_gives_the_build_of_a_key(tmp_path: Path, plan: Plan) -> None:
    """The archive is used where it is, and its path is printed."""
    shelf = shelve(tmp_path, plan)
    ran = fetch(tmp_path, "--source", shelf, "--json")
    assert (ran.code, len(ran.json)) == (0, 1), ran.err
    row = ran.json[0]
    assert (row["build"], row["error"]) == (plan.builds[0].key, None)
    assert Path(row["paths"][0]).read_bytes() == (shelf / "llama.tar").read_bytes()


def upload(endpoint: str, shelf: Path, prefix: str) -> None:
    """Put all files of `shelf` below `prefix` of a bucket."""
    for path in shelf.iterdir():
        connect(endpoint).put_object(Bucket="models", Key=f"{prefix}/{path.name}", Body=path.read_bytes())


def test_s3_gives_it_once_and_then_the_store_alone(tmp_path: Path, plan: Plan, s3: str) -> None:
    """Fetched from S3, it is there `--offline`, without any source; in an empty store it is not."""
    upload(s3, shelve(tmp_path, plan), "builds")
    assert fetch(tmp_path, "--source", f"s3://models/builds?endpoint={s3}").code == 0
    ran = fetch(tmp_path, "--offline", "--source", f"s3://models/builds?endpoint={s3}")
    assert ran.code == 0, ran.err
    assert fetch(tmp_path, "--offline").code == 0
    ran = fetch(tmp_path, "--offline", "--store", tmp_path / "empty", "--source", f"s3://models/builds?endpoint={s3}")
    assert (ran.code, "no network is to be used" in ran.err) == (4, True)


def test_artifacts_of_a_run_give_it(
    tmp_path: Path, plan: Plan, github: GitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact that holds archive and ticket is a source like any other; GitHub is played by a server of the tests."""
    shelf = shelve(tmp_path, plan)
    github.add(1, plan.builds[0].artifact, archive({path.name: path.read_bytes() for path in shelf.iterdir()}))
    monkeypatch.setenv("GITHUB_API_URL", github.address)
    ran = fetch(tmp_path, "--source", f"run:acme/models/{RUN}")
    assert ran.code == 0, ran.err
    assert fetch(tmp_path, "--offline").code == 0


def test_hubs_are_not_asked_for_builds(tmp_path: Path, plan: Plan) -> None:
    """Without a source that knows names, the error says which ones do."""
    del plan
    ran = fetch(tmp_path)
    assert ran.code == 4
    assert "no source knows files by name" in ran.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"commit": "0" * 40}, "the pin is"),
        ({"patches": (("0001-a.patch", "0" * 64),)}, "its patches are not those of the pin"),
        ({"key": "other~"}, "the legs wait for"),
        ({"key": ""}, "its build key is empty"),
        ({"backend": "cuda"}, "it is for cuda, the legs are for cpu"),
        ({"system": {"os": "plan9", "arch": "x64"}}, "built for os plan9"),
    ],
)
def test_another_build_under_the_name_is_refused(
    tmp_path: Path, plan: Plan, changes: dict[str, Any], words: str
) -> None:
    """A ticket that leads to a sound archive of something else: named, exit code 2, and not kept for the next time."""
    shelf = shelve(tmp_path, plan, **changes)
    ran = fetch(tmp_path, "--source", shelf)
    assert (ran.code, words in ran.err) == (2, True), ran.err
    assert not (tmp_path / "store/builds").exists()
    assert fetch(tmp_path, "--source", shelve(tmp_path, plan)).code == 0


def test_changed_bytes_are_refused(tmp_path: Path, plan: Plan) -> None:
    """One bit of the archive, or of a library in an archive with a fresh ticket: never used."""
    shelf = shelve(tmp_path, plan)
    data = bytearray((shelf / "llama.tar").read_bytes())
    data[data.index(b"not a library")] ^= 1
    (shelf / "llama.tar").write_bytes(data)
    ran = fetch(tmp_path, "--source", shelf)
    assert (ran.code, "wrong_bytes" in ran.err) == (4, True), ran.err
    BuildTicket.of(shelf / "llama.tar", plan.builds[0].key).write(shelf)
    ran = fetch(tmp_path, "--source", shelf)
    assert (ran.code, "is not what was built" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", "[" * 1000, '{"key": 1}'),
        '{"key": "KEY", "file": "../llama.tar", "size": 1, "sha256": "00"}',
        '{"key": "KEY", "file": "llama.tar", "size": true, "sha256": "' + 64 * "0" + '"}',
        '{"key": "KEY", "file": "llama.tar", "size": -1, "sha256": "' + 64 * "0" + '"}',
        '{"key": "KEY", "file": "llama.tar", "size": 1, "sha256": "' + 64 * "0" + '", "more": 1}',
        '{"key": "other", "file": "llama.tar", "size": 1, "sha256": "' + 64 * "0" + '"}',
    ],
)
def test_tickets_of_something_else_are_refused(plan: Plan, text: str) -> None:
    """What is no ticket, leads elsewhere, or is of another build, is a ValueError with the name of the ticket."""
    key = plan.builds[0].key
    with pytest.raises(ValueError, match=r"is (no|the) ticket"):
        BuildTicket.parse(text.replace("KEY", key).encode(), key)


def test_the_next_source_is_asked_after_a_broken_ticket(tmp_path: Path, plan: Plan) -> None:
    """A source with rubbish under the name does not hide the one that has the build; alone, it is named."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / ticket_name(plan.builds[0].key)).write_text("<html>", encoding="utf-8")
    ran = fetch(tmp_path, "--source", broken)
    assert (ran.code, "is no ticket of a build" in ran.err) == (4, True), ran.err
    assert fetch(tmp_path, "--source", broken, "--source", shelve(tmp_path, plan)).code == 0


def test_a_build_in_the_store_is_not_believed(tmp_path: Path, plan: Plan, s3: str) -> None:
    """Bytes that changed in the store are put aside and fetched again; offline there is nothing to use."""
    upload(s3, shelve(tmp_path, plan), "again")
    source = ("--source", f"s3://models/again?endpoint={s3}")
    assert fetch(tmp_path, *source).code == 0
    (blob,) = (path for path in (tmp_path / "store/sha256").rglob("*") if path.is_file())
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes().replace(b"not a library", b"not A library"))
    assert fetch(tmp_path, "--offline").code == 4
    assert fetch(tmp_path, *source).code == 0
    assert fetch(tmp_path, "--offline").code == 0


@pytest.mark.parametrize("options", [("--builds",), ("qwen3-dense", "--builds")])
def test_builds_are_those_of_a_plan(options: tuple[str, ...]) -> None:
    """`--builds` without a plan is a mistake of the call."""
    assert skippy("fetch", *options).code == 2


def test_one_build_is_tested_at_a_time(tmp_path: Path, plan: Plan) -> None:
    """Legs that wait for two builds are refused, and so is `--build plan` without a plan; no receipt is written."""
    other = Build(**{**plan.builds[0]._asdict(), "key": "other~", "artifact": "other"})
    second = dataclasses.replace(plan.legs[0], id="second@cpu", build_key="other~")
    two = dataclasses.replace(plan, legs=(*plan.legs, second), builds=(*plan.builds, other))
    write_plan(two, tmp_path / "two.json")
    for arguments in (("--plan", tmp_path / "two.json"), ("qwen3-dense", "--twin")):
        ran = skippy("certify", *arguments, "--build", "plan", "--receipts", tmp_path / "receipts")
        assert ran.code == 2, ran.err
        assert "Traceback" not in ran.err
    assert not (tmp_path / "receipts").exists()


@pytest.mark.slow
def test_certify_end_to_end(tmp_path: Path, checkout: Path, plan: Plan, s3: str) -> None:
    """One command: leg, build from S3, verified, battery, receipt. The same offline, and not after the build has gone."""
    made = pack_installed(tmp_path, layout_of_checkout(checkout), key=plan.builds[0].key, commit=plan.pin.commit)
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    shutil.copy(made, shelf / "llama.tar")
    BuildTicket.of(shelf / "llama.tar", plan.builds[0].key).write(shelf)
    upload(s3, shelf, "certify")
    command = ("certify", "--plan", tmp_path / "plan.json", "--leg", "qwen3-dense@cpu", "--build", "plan", "--json")
    for options in (("--source", f"s3://models/certify?endpoint={s3}"), ("--offline",)):
        ran = skippy(*command, "--receipts", tmp_path / "receipts", *options)
        assert ran.code == 0, ran.err
        receipt = ran.json[0]
        assert (receipt["build_key"], receipt["status"]) == (plan.builds[0].key, "pass")
        assert receipt["engine"]["build"]["key"] == plan.builds[0].key
        recorded = json.loads(subprocess.check_output(["tar", "-xOf", str(made), "build.json"]))
        digests = {member["path"]: member.get("sha256") for member in recorded["members"]}
        assert receipt["engine"]["libraries"]
        assert all(digests[f"lib/{name}"] == value for name, value in receipt["engine"]["libraries"].items())
    shutil.rmtree(tmp_path / "store/sha256")
    ran = skippy(*command, "--receipts", tmp_path / "others", "--offline")
    assert (ran.code, (tmp_path / "others").exists()) == (4, False), ran.err
