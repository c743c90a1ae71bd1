"""S3: a real server, and one that only resembles it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import FetchFailed, ObjectChanged
from agent.store.patience import Patience
from agent.store.sources.s3 import S3Source
from agent.store.sources.source import Remote
from tests.agent.store.conftest import Notes, Opener, fetch, model_bytes, wanted

DATA = model_bytes(6 * 2**20)
FILE = wanted(DATA)
KEY = f"mirror/{FILE.repo}/{FILE.revision}/{FILE.path}"
BIN = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, with room for the second port that each server of seaweedfs takes 10000 above.

    Both stay below what the system gives to outgoing connections.
    """
    with contextlib.ExitStack() as stack:
        found = []
        for port in range(10500 + os.getpid() * 31 % 10000, 22500, 7):  # tests that run beside this one look elsewhere
            with contextlib.suppress(OSError):
                for wanted_port in (port, port + 10000):
                    made = stack.enter_context(socket.socket())
                    made.bind(("127.0.0.1", wanted_port))
                found.append(port)
            if len(found) == count:
                return found
    raise AssertionError("no free ports")


def connect(endpoint: str, key: str = "key", secret: str = "secret") -> Any:
    """A client of our own, to fill the server."""
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        connect_timeout=2,
        read_timeout=20,
    )
    session = boto3.Session(aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint, config=config)


@contextlib.contextmanager
def running(command: list[str], endpoint: str, log: Path) -> Iterator[str]:
    """A server for the length of a block, with the file in a bucket."""
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent) as server:
        try:
            client, last = connect(endpoint), Exception("never asked")
            for _ in range(300):
                try:
                    client.create_bucket(Bucket="models")
                    client.put_object(Bucket="models", Key=KEY, Body=DATA)
                    break
                except Exception as error:  # noqa: BLE001 - it is not up yet
                    assert server.poll() is None, log.read_text()
                    last = error
                    time.sleep(0.1)
            else:
                raise AssertionError(f"{last}: {log.read_text()[-2000:]}")
            yield endpoint
        finally:
            server.kill()  # an orderly end takes it half a minute, and nothing of it is kept


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """SeaweedFS: checks signatures, ranges and conditions as the API documents them."""
    folder = tmp_path_factory.mktemp("seaweed")
    master, volume, filer, s3 = free_ports(4)
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identities = [
        {"name": "admin", "credentials": [{"accessKey": "key", "secretKey": "secret"}], "actions": actions},
        {"name": "anonymous", "actions": ["Read:open", "List:open"]},
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    command = [str(BIN / "weed"), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [
        f"-master.port={master}",
        f"-volume.port={volume}",
        "-filer",
        f"-filer.port={filer}",
        "-s3",
        f"-s3.port={s3}",
    ]
    command += [
        f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-volume.max=8",
        "-master.volumeSizeLimitMB=64",
    ]
    with running(command, f"http://127.0.0.1:{s3}", folder / "log") as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`rclone serve s3`: ignores conditions, and its checksums of ranges are those of the whole object."""
    folder = tmp_path_factory.mktemp("rclone")
    (port,) = free_ports(1)
    (folder / "data").mkdir()
    command = [
        str(BIN / "rclone"),
        "serve",
        "s3",
        "--addr",
        f"127.0.0.1:{port}",
        "--auth-key",
        "key,secret",
        str(folder / "data"),
    ]
    with running(command, f"http://127.0.0.1:{port}", folder / "log") as endpoint:
        yield endpoint


@pytest.fixture(params=["seaweed", "rclone"])
def endpoint(request: pytest.FixtureRequest) -> str:
    """Each server in turn."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a runner has them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def test_a_file_is_fetched(endpoint: str, store: Opener) -> None:
    """From a real server and from a sloppy one, below a prefix."""
    assert fetch(store(f"s3://models/mirror?endpoint={endpoint}"), [FILE]) == [DATA]


def test_pieces_and_resumption(endpoint: str, store: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranged GETs in parallel, from the middle of a file that was interrupted."""
    monkeypatch.setattr("agent.store.ranges.PIECE", 2**20)
    notes = Notes()
    opened = store(f"s3://models/mirror?endpoint={endpoint}", progress=notes)
    opened.root.partials.mkdir()
    opened.root.partial(FILE.sha256).write_bytes(DATA[:1_234_567])
    assert fetch(opened, [FILE]) == [DATA]
    assert any(what.startswith("from s3:") and done == 1_234_567 for _, what, done, _ in notes.begun)


def test_wrong_bytes_are_caught_though_the_etag_is_fine(endpoint: str, store: Opener) -> None:
    """An object of the right name and size with other bytes: its ETag proves nothing, the plan's sha256 does."""
    connect(endpoint).put_object(Bucket="models", Key="liar/model.gguf", Body=DATA[:-1] + b"\0")
    with pytest.raises(FetchFailed, match=r"s3://models/liar: wrong_bytes: .* gave sha256"):
        fetch(store(f"s3://models/liar?endpoint={endpoint}"), [FILE])


def test_multipart_etags_are_no_digests(seaweed: str, store: Opener) -> None:
    """A file uploaded in parts has an ETag like abc-2, and is fetched like any other."""
    client = connect(seaweed)
    upload = client.create_multipart_upload(Bucket="models", Key="parts/model.gguf")["UploadId"]
    parts = []
    for number, start in enumerate((0, 5 * 2**20), 1):
        body = DATA[start : 5 * 2**20 if number == 1 else None]
        tag = client.upload_part(
            Bucket="models", Key="parts/model.gguf", UploadId=upload, PartNumber=number, Body=body
        )["ETag"]
        parts.append({"PartNumber": number, "ETag": tag})
    client.complete_multipart_upload(
        Bucket="models", Key="parts/model.gguf", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    assert "-2" in client.head_object(Bucket="models", Key="parts/model.gguf")["ETag"]
    assert fetch(store(f"s3://models/parts?endpoint={seaweed}"), [FILE]) == [DATA]


def test_an_object_that_changes_meanwhile_is_noticed(endpoint: str) -> None:
    """Between two ranges the object is replaced: the second one is refused, also where the server ignores If-Match."""
    client = connect(endpoint)
    client.put_object(Bucket="models", Key="moving/model.gguf", Body=DATA)
    source = S3Source("models", "moving", endpoint=endpoint)
    (offer,) = source.offers(FILE, Patience())
    assert isinstance(offer, Remote)
    with offer.open(0, 1000) as stream:
        assert b"".join(stream.chunks) == DATA[:1000]
    client.put_object(Bucket="models", Key="moving/model.gguf", Body=DATA[::-1])
    with pytest.raises(ObjectChanged), offer.open(1000, 2000):
        pass


def test_what_is_not_there_is_not_there(endpoint: str, store: Opener) -> None:
    """A missing object lets the next source try; a missing bucket is said."""
    with pytest.raises(FetchFailed, match=r"s3://models/nothing: does not have it"):
        fetch(store(f"s3://models/nothing?endpoint={endpoint}"), [FILE])


@pytest.mark.parametrize("what", ["key", "secret", "none"])
def test_credentials_are_named_and_never_shown(
    seaweed: str, store: Opener, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A wrong key, a wrong secret and none at all are access_denied, at once, and no secret is shown."""
    if what == "key":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknownkey")
    elif what == "secret":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrongsecret")
    else:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(FetchFailed, match=": access_denied: ") as caught:
        fetch(store(f"s3://models/mirror?endpoint={seaweed}"), [FILE])
    assert "wrongsecret" not in str(caught.value)


def test_a_key_that_no_header_carries_is_named(
    seaweed: str, store: Opener, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """A line break in a key is the key's fault, not the network's: no second try, and no signature is shown."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key\nkey")
    with pytest.raises(FetchFailed, match=r"access_denied: .*the credentials hold") as caught:
        fetch(store(f"s3://models/mirror?endpoint={seaweed}"), [FILE])
    assert "Signature" not in str(caught.value)
    assert waits == []


def test_an_open_bucket_needs_no_credentials(seaweed: str, store: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """`anonymous=1` sends none."""
    client = connect(seaweed)
    client.create_bucket(Bucket="open")
    client.put_object(Bucket="open", Key="model.gguf", Body=DATA)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert fetch(store(f"s3://open?endpoint={seaweed}&anonymous=1&region=us-east-1"), [FILE]) == [DATA]


def test_a_profile_is_used(seaweed: str, store: Opener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials of a named profile; an unknown one is refused with its name."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text(
        "[mirror]\naws_access_key_id = key\naws_secret_access_key = secret\nregion = us-east-1\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert fetch(store(f"s3://models/mirror?endpoint={seaweed}&profile=mirror"), [FILE]) == [DATA]
    with pytest.raises(FetchFailed, match=r"source_refused.*nobody"):
        fetch(store(f"s3://models/mirror?endpoint={seaweed}&profile=nobody", folder="other"), [FILE])


def test_a_server_that_is_away_is_tried_again(store: Opener, waits: list[float]) -> None:
    """No connection is network_failed, after the tries that are owed."""
    with pytest.raises(FetchFailed, match=": network_failed: "):
        fetch(store("s3://models/x?endpoint=http://127.0.0.1:1"), [FILE])
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [
        (503, "SlowDown", "rate_limited"),
        (429, "TooManyRequests", "rate_limited"),
        (500, "InternalError", "server_failed"),
        (403, "AccessDenied", "access_denied"),
        (403, "RequestTimeTooSkewed", "clock_skew"),
        (404, "NoSuchBucket", "artifact_gone"),
        (416, "InvalidRange", "range_refused"),
        (400, "Strange", "source_refused"),
    ],
)
def test_every_answer_has_its_cause(status: int, code: str, cause: str) -> None:
    """The codes of the API, as boto3 raises them, lead to one cause each."""
    from botocore.exceptions import ClientError

    from agent.store.sources.s3 import _named

    answer = {
        "Error": {"Code": code},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "7"}},
    }
    named = _named(ClientError(answer, "GetObject"), "s3://b/k")
    assert named.cause == cause
    assert named.retry_after == (7 if cause in ("rate_limited", "server_failed") else None)
