"""Headers on the hub: ranges of a server that speaks the hub's routes, and all that it may answer instead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent.commands.folders import twin_folder
from agent.errors import RemoteUnreadable
from agent.header.reader import read_remote_header
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for

REFERENCE = "hf://owner/repo@0123456789abcdef0123456789abcdef01234567/folder/model.gguf"
PROGRAM = """
import sys
from agent.errors import AgentError
from agent.header.reader import read_remote_header
try:
    header = read_remote_header(sys.argv[1])
    print(header.architecture, header.block_count, len(header.tensors))
except AgentError as error:
    print(type(error).__name__, error)
"""


class Server(ThreadingHTTPServer):
    """Serves one file in ranges, or misbehaves as `fault` says."""

    data = b""
    fault = ""
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    """The resolve route of the hub."""

    server: Server

    def do_GET(self) -> None:
        """Answer a range."""
        self.server.asked.append(f"{self.path} {self.headers.get('Range')}")
        if self.server.fault == "missing" or "/resolve/" not in self.path:  # the client also asks for news about itself
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        first, last = (int(part) for part in str(self.headers["Range"]).removeprefix("bytes=").split("-"))
        body = self.server.data[first : last + 1]
        whole = self.server.fault == "ignores ranges"
        self.send_response(200 if whole else 206)
        if self.server.fault != "no content range":
            self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(self.server.data)}")
        if self.server.fault == "short":
            body = body[:-1]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A hub on a free port, with the twin of a hybrid as its file."""
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    server.data = build_twin(recipe_for("jamba"), twin_folder()).read_bytes()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server: Server, reference: str = REFERENCE) -> str:
    """Read a header in a process of its own: the hub's client reads its endpoint when it is imported."""
    host, port = server.server_address[:2]
    environment = {**os.environ, "HF_ENDPOINT": f"http://{host!s}:{port}", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, reference], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.strip()


def test_a_header_is_read_by_ranges(server: Server) -> None:
    """Architecture, layers and tensors come over, and far less than the file."""
    assert ask(server).startswith("jamba 28 ")
    ranges = [line for line in server.asked if line.startswith("/owner/repo/resolve/0123456789abcdef")]
    assert 1 <= len(ranges) < 3
    assert len(server.data) > 3 << 20


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("missing", "404"),
        ("ignores ranges", "200 to a request for a part"),
        ("no content range", "does not say which part"),
        ("short", "bytes came instead of"),
    ],
)
def test_other_answers_are_named(server: Server, fault: str, words: str) -> None:
    """A server that is not a hub, or lies about its ranges, is an error of the network, with what it said."""
    server.fault = fault
    answer = ask(server)
    assert answer.startswith("RemoteUnreadable")
    assert words in answer


def test_an_html_page_is_named(server: Server) -> None:
    """A page in place of a model has the same verdict as in a file."""
    server.data = b"<!doctype html><html><body>sign in</body></html>"
    assert "html_page" in ask(server)


@pytest.mark.parametrize(
    "reference", ["hf://model.gguf", "hf://owner/repo/model.bin", "hf://owner/../x.gguf?y", "hf://"]
)
def test_a_reference_has_one_form(reference: str) -> None:
    """Anything but owner, repository, revision and the path of a GGUF is refused before the network is used."""
    with pytest.raises(RemoteUnreadable, match="not of the form"):
        read_remote_header(reference)
