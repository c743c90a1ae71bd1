"""GitHub's API and its storage, as far as releases and artifacts need them, spoken to by PyGithub."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.errors import FetchFailed, SourceUnknown
from tests.agent.store.conftest import Notes, Opener, fetch, leftovers, model_bytes, wanted

DATA = model_bytes(300_000)
FILE = wanted(DATA, "Q4/model.gguf")
TOKEN = "ghp_" + "SecretSecretSecret"
RUN = 4711


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP of members."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as opened:
        for name, data in members.items():
            opened.writestr(name, data)
    return made.getvalue()


@dataclass
class GitHub:
    """What the server holds; see the handler for the routes."""

    assets: dict[str, bytes] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    archives: dict[int, bytes] = field(default_factory=dict)
    status: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    cut: list[float] = field(default_factory=list)
    address: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    storage_auth: list[str | None] = field(default_factory=list)

    def add(self, number: int, name: str, data: bytes, *, digest: str | None = None, **fields: Any) -> None:
        """One more artifact."""
        self.archives[number] = data
        self.artifacts.append(
            {
                "id": number,
                "name": name,
                "size_in_bytes": len(data),
                "expired": False,
                "digest": digest or "sha256:" + hashlib.sha256(data).hexdigest(),
                "workflow_run": {"id": RUN, "head_sha": "a" * 40},
            }
            | fields
        )


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    github: GitHub

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        github, path = self.github, self.path.partition("?")[0]
        github.requests[path] += 1
        repo, base = "/repos/acme/models", github.address
        if github.status and not path.startswith("/storage"):
            status, headers, message = github.status.pop(0)
            self._send(json.dumps({"message": message}).encode(), status, headers)
        elif path == f"{repo}/releases/tags/v1":
            self._json({"id": 1, "tag_name": "v1", "url": f"{base}{repo}/releases/1"})
        elif path == f"{repo}/releases/1/assets":
            fields = {"state": "uploaded"}
            rows = [
                {"id": n, "name": name, "size": len(data), "url": f"{base}{repo}/releases/assets/{n}"} | fields
                for n, (name, data) in enumerate(github.assets.items())
            ]
            self._json(rows)
        elif path == f"{repo}/actions/runs/{RUN}":
            self._json(
                {
                    "id": RUN,
                    "url": f"{base}{repo}/actions/runs/{RUN}",
                    "artifacts_url": f"{base}{repo}/actions/runs/{RUN}/artifacts",
                }
            )
        elif path == f"{repo}/actions/runs/{RUN}/artifacts":
            rows = [
                row | {"archive_download_url": f"{base}{repo}/actions/artifacts/{row['id']}/zip"}
                for row in github.artifacts
            ]
            self._json({"total_count": len(rows), "artifacts": rows})
        elif path.startswith("/storage"):
            github.storage_auth.append(self.headers.get("Authorization"))
            number = int(path.removesuffix("/zip").rpartition("/")[2])
            self._bytes(github.archives[number] if path.endswith("/zip") else list(github.assets.values())[number])
        elif "/releases/assets/" in path or path.endswith("/zip"):
            host = base.replace("127.0.0.1", "localhost")
            self._send(b"", 302, {"Location": f"{host}/storage{path}?sig=c0ffee"})
        else:
            self._send(b'{"message": "Not Found"}', 404, {})

    def _bytes(self, data: bytes) -> None:
        start = int(self.headers.get("Range", "bytes=0-")[6:].partition("-")[0])
        part = data[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.github.cut:
            part = part[: int(len(part) * self.github.cut.pop(0))]
            self.close_connection = True
        self.wfile.write(part)

    def _json(self, value: Any) -> None:
        self._send(json.dumps(value).encode(), 200, {})

    def _send(self, body: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    """A server that runs, where GITHUB_API_URL says."""
    made = GitHub()
    handler = type("Handler", (_Handler,), {"github": made})
    with http.server.ThreadingHTTPServer(("", 0), handler) as server:
        made.address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("GITHUB_API_URL", made.address)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def test_an_asset_of_a_release_is_fetched(github: GitHub, store: Opener) -> None:
    """By name and size; the token goes to the API and not to the storage that it leads to."""
    github.assets = {"model.gguf": DATA, "other.gguf": b"x"}
    assert fetch(store("release:acme/models@v1"), [FILE]) == [DATA]
    assert github.storage_auth == [None]


def test_an_interrupted_asset_is_continued(github: GitHub, store: Opener) -> None:
    """The second request begins where the first one ended."""
    github.assets = {"model.gguf": DATA}
    github.cut = [0.4]
    opened = store("release:acme/models@v1")
    assert fetch(opened, [FILE]) == [DATA]
    assert len(github.storage_auth) == 2


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("member", ["Q4/model.gguf", "model.gguf"])
@pytest.mark.parametrize("source", [f"run:acme/models/{RUN}", f"run:acme/models/{RUN}/weights"])
def test_a_member_of_an_artifact_is_fetched(
    github: GitHub, store: Opener, compression: int, member: str, source: str
) -> None:
    """From the named artifact or from any of the run; nothing of the archive stays."""
    github.add(1, "logs", archive({"log.txt": b"x"}))
    github.add(2, "weights", archive({"readme.md": b"x", member: DATA}, compression))
    opened = store(source)
    assert fetch(opened, [FILE]) == [DATA]
    assert leftovers(opened) == []
    assert github.storage_auth[-1] is None


def test_the_newest_artifact_of_a_name_comes_first(github: GitHub, store: Opener) -> None:
    """A rerun leaves two artifacts of one name: the later one is looked into first, and the digest decides anyway."""
    github.add(2, "weights", archive({"model.gguf": DATA}))
    github.add(1, "weights", archive({"model.gguf": DATA[:-1] + b"\0"}))
    assert fetch(store(f"run:acme/models/{RUN}/weights"), [FILE]) == [DATA]
    assert github.requests["/storage/repos/acme/models/actions/artifacts/1/zip"] == 0


@pytest.mark.parametrize(
    "name", ["../../../model.gguf", "/model.gguf", "Q4\\model.gguf", "..\\model.gguf", "other/model.gguf"]
)
def test_a_member_that_leads_elsewhere_is_not_the_wanted_one(github: GitHub, store: Opener, name: str) -> None:
    """Members are read by their exact name and never unpacked, so a path that climbs out lands nowhere."""
    github.add(1, "weights", archive({name: DATA}))
    opened = store(f"run:acme/models/{RUN}")
    with pytest.raises(FetchFailed, match="does not have it"):
        fetch(opened, [FILE])
    assert not list(opened.root.path.parent.rglob("model.gguf"))


def test_a_bomb_does_not_go_off(github: GitHub, store: Opener) -> None:
    """A member of another size than the plan's is not even opened."""
    github.add(1, "weights", archive({"model.gguf": bytes(50 * 2**20)}))
    with pytest.raises(FetchFailed, match="does not have it"):
        fetch(store(f"run:acme/models/{RUN}"), [FILE])


@pytest.mark.parametrize("fault", ["cut", "digest", "html", "flip", "twice"])
def test_a_broken_archive_is_tried_three_times_and_named(github: GitHub, store: Opener, fault: str) -> None:
    """A cut, changed or false archive is artifact_corrupt (or network_failed where the connection says so), never the model."""
    good = archive({"model.gguf": DATA}, zipfile.ZIP_STORED)
    if fault == "cut":
        github.add(1, "weights", good)
        github.cut = [0.9] * 20
    elif fault == "digest":
        github.add(1, "weights", good, digest="sha256:" + "0" * 64)
    elif fault == "html":
        github.add(1, "weights", b"<!DOCTYPE html><html></html>")
    elif fault == "flip":
        github.add(1, "weights", good[:1000] + bytes([good[1000] ^ 1]) + good[1001:])
    else:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as opened:
            opened.writestr("model.gguf", DATA)
            with pytest.warns(UserWarning, match="Duplicate"):
                opened.writestr("model.gguf", DATA[::-1])
        github.add(1, "weights", made.getvalue())
    opened_store = store(f"run:acme/models/{RUN}")
    with pytest.raises(FetchFailed, match=r"artifact_corrupt|network_failed"):
        fetch(opened_store, [FILE])
    assert opened_store.root.blobs() == []
    assert github.requests["/storage/repos/acme/models/actions/artifacts/1/zip"] >= 3


def test_a_cut_archive_is_overcome(github: GitHub, store: Opener) -> None:
    """One truncated download costs one more."""
    github.add(1, "weights", archive({"model.gguf": DATA}))
    github.cut = [0.9]
    assert fetch(store(f"run:acme/models/{RUN}"), [FILE]) == [DATA]


@pytest.mark.parametrize(
    ("fields", "source", "cause"),
    [
        ({"expired": True}, f"run:acme/models/{RUN}", "artifact_expired"),
        ({"workflow_run": {"id": 99}}, f"run:acme/models/{RUN}", "wrong_run"),
        ({}, f"run:acme/models/{RUN}/other", "artifact_gone"),
        ({}, "run:acme/models/1", "artifact_gone"),
        ({}, "release:acme/models@v2", "artifact_gone"),
        ({}, "release:acme/nothing@v1", "artifact_gone"),
    ],
)
def test_what_is_not_there_is_named(
    github: GitHub, store: Opener, fields: dict[str, Any], source: str, cause: str
) -> None:
    """Expired, of another run, under another name, of another repository."""
    github.add(1, "weights", archive({"model.gguf": DATA}), **fields)
    with pytest.raises(FetchFailed, match=f": {cause}: "):
        fetch(store(source), [FILE])
    assert github.storage_auth == []


@pytest.mark.parametrize(
    ("status", "headers", "cause", "tries"),
    [
        (401, {}, "access_denied", 1),
        (403, {}, "access_denied", 1),
        (403, {"X-RateLimit-Remaining": "0"}, "rate_limited", 3),
        (403, {"Retry-After": "9000"}, "rate_limited", 1),
        (429, {}, "rate_limited", 3),
        (502, {}, "server_failed", 3),
        (418, {}, "source_refused", 1),
    ],
)
@pytest.mark.parametrize("source", ["release:acme/models@v1", f"run:acme/models/{RUN}"])
def test_answers_are_named_without_the_token(
    github: GitHub, store: Opener, status: int, headers: dict[str, str], cause: str, tries: int, source: str
) -> None:
    """Each refusal of the API has its cause and its number of tries; the token is in no message."""
    github.status = [(status, headers, f"Bad credentials {TOKEN}")] * 9
    notes = Notes()
    with pytest.raises(FetchFailed, match=f": {cause}: ") as caught:
        fetch(store(source, progress=notes), [FILE])
    assert 9 - len(github.status) == tries
    assert TOKEN not in str(caught.value) + "".join(notes.notes)


@pytest.mark.parametrize("source", ["release:acme/models@v1", f"run:acme/models/{RUN}"])
@pytest.mark.parametrize("variable", ["GITHUB_TOKEN", "GH_TOKEN"])
@pytest.mark.parametrize("token", ["ghp_Secret\nsecretsecret", "ghp_S\u00e9cretsecret"])
def test_a_token_that_no_header_carries_is_never_shown(
    github: GitHub, store: Opener, monkeypatch: pytest.MonkeyPatch, source: str, variable: str, token: str
) -> None:
    """HTTP libraries quote such a token in their errors, so it is refused before they see it."""
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    monkeypatch.setenv(variable, token)
    notes = Notes()
    with pytest.raises(FetchFailed, match=f"access_denied: the token in {variable}") as caught:
        fetch(store(source, progress=notes), [FILE])
    assert "ecret" not in str(caught.value) + "".join(notes.notes)
    assert github.requests.total() == 0


@pytest.mark.parametrize("address", ["nonsense", "http://host:99999", "ftp://host"])
def test_an_api_that_is_no_address_is_refused(store: Opener, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """GITHUB_API_URL is named."""
    monkeypatch.setenv("GITHUB_API_URL", address)
    with pytest.raises(SourceUnknown, match="GITHUB_API_URL"):
        store("release:acme/models@v1")


def test_an_offline_agent_does_not_ask(github: GitHub, store: Opener) -> None:
    """No request at all."""
    with pytest.raises(FetchFailed, match="offline"), contextlib.ExitStack():
        fetch(store("release:acme/models@v1", offline=True), [FILE])
    assert github.requests.total() == 0
