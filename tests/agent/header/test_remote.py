"""Headers on the hub: ranges of a server that speaks the hub's routes, and all that it may answer instead."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent.commands.folders import twin_folder
from agent.errors import RemoteUnreadable
from agent.header.reader import read_header, read_remote_header
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from tests.agent.header.kit import architecture, gguf, key, strings

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
    """Serves files in ranges, or misbehaves as `fault` says. `sent` counts the bytes of bodies.

    Attributes:
        data: of every path that is not in `files`.
        files: other files, by name; None for one that is not there.
    """

    data = b""
    files: dict[str, bytes | None]
    fault = ""
    sent = 0
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    """The resolve route of the hub."""

    server: Server

    def do_GET(self) -> None:
        """Answer a range."""
        self.server.asked.append(f"{self.path} {self.headers.get('Range')}")
        data = self.server.files.get(self.path.rpartition("/")[2], self.server.data)
        if (
            data is None or self.server.fault == "missing" or "/resolve/" not in self.path
        ):  # the client also asks for news about itself
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.server.fault in ("busy", "busy for a day") and len(self.server.asked) < 3:
            self.send_response(429)
            self.send_header("Retry-After", "1" if self.server.fault == "busy" else "86400")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        first, last = (int(part) for part in str(self.headers["Range"]).removeprefix("bytes=").split("-"))
        body = data[first : last + 1]
        endless = self.server.fault in ("ignores ranges", "long")
        self.send_response(200 if self.server.fault == "ignores ranges" else 206)
        total = len(data) + (first if self.server.fault == "grows" else 0)
        start = first + (self.server.fault == "other range")
        if self.server.fault != "no content range":
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{total}")
        if self.server.fault == "short":
            body = body[:-1]
        self.send_header("Content-Length", str(10**12 if endless else len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            while True:
                self.server.sent += self.wfile.write(body)
                if not endless:
                    break

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A hub on a free port, with the twin of a hybrid as its file."""
    server = Server(("127.0.0.1", 0), Handler)
    server.asked, server.files = [], {}
    server.data = build_twin(recipe_for("jamba"), twin_folder()).read_bytes()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server: Server, reference: str = REFERENCE, *, program: str = PROGRAM, token: str = "") -> str:
    """Read a header in a process of its own: the hub's client reads its endpoint when it is imported."""
    host, port = server.server_address[:2]
    environment = {**os.environ, "HF_ENDPOINT": f"http://{host!s}:{port}", "HF_HUB_OFFLINE": "0", "HF_TOKEN": token}
    done = subprocess.run(
        [sys.executable, "-c", program, reference], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.strip()


def test_a_header_is_read_by_ranges(server: Server) -> None:
    """Architecture, layers and tensors come over, and far less than the file."""
    assert ask(server).startswith("jamba 28 ")
    ranges = [line for line in server.asked if line.startswith("/owner/repo/resolve/0123456789abcdef")]
    assert 1 <= len(ranges) < 3
    assert len(server.data) > 3 << 20


def in_files(server: Server, count: int) -> list[str]:
    """Put a twin in `count` files on the server; their references."""
    recipe = recipe_for("lfm2")
    names = [tensor.name for tensor in read_header(build_twin(recipe, twin_folder())).tensors]
    shards = tuple(tuple(names[number::count]) for number in range(count))
    first = build_twin(replace(recipe, shards=shards), twin_folder())
    paths = [first.with_name(first.name.replace("-00001-of-", f"-{number + 1:05d}-of-")) for number in range(count)]
    server.files = {path.name: path.read_bytes() for path in paths}
    return [REFERENCE.replace("model.gguf", path.name) for path in paths]


@pytest.mark.parametrize("named", [0, 2])
def test_all_files_of_a_split_model_are_read(server: Server, named: int) -> None:
    """Whichever file is named: architecture and layers of the first, tensors of all."""
    whole = read_header(build_twin(recipe_for("lfm2"), twin_folder()))
    references = in_files(server, 3)
    assert ask(server, references[named]) == f"lfm2 {whole.block_count} {len(whole.tensors)}"
    ranges = [line for line in server.asked if "/resolve/" in line]
    assert len(ranges) == len(set(ranges)) >= 3, "no part of a file is fetched twice"


def test_a_file_that_the_hub_does_not_have_is_named(server: Server) -> None:
    """Two of three files are no model."""
    references = in_files(server, 3)
    lost = references[1].rpartition("/")[2]
    server.files[lost] = None
    answer = ask(server, references[0])
    assert answer.startswith("RemoteUnreadable")
    assert lost in answer
    assert "404" in answer


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("missing", "404"),
        ("ignores ranges", "200 to a request for a part"),
        ("no content range", "does not say which part"),
        ("short", "bytes instead of"),
        ("other range", "sent bytes 1 to"),
        ("grows", "was replaced meanwhile"),
        ("long", "more than the"),
        ("busy for a day", "429"),
    ],
)
def test_other_answers_are_named(server: Server, fault: str, words: str) -> None:
    """A server that is not a hub, or lies about its ranges, is an error of the network, with what it said."""
    server.fault = fault
    answer = ask(server)
    assert answer.startswith("RemoteUnreadable")
    assert words in answer
    assert server.sent < 64 << 20, "a model of a terabyte is not read in order to refuse it"


def test_a_busy_server_is_asked_again(server: Server) -> None:
    """429 with a wait that is short enough costs the wait, not the header."""
    server.fault = "busy"
    assert ask(server).startswith("jamba 28 ")


def test_a_header_without_end_is_bounded(server: Server) -> None:
    """Strings that reach through all of a model of terabytes: neither all of it is fetched nor all that was is kept."""
    length = (1 << 20) - 8
    entry = struct.pack("<Q", length)
    head = gguf([architecture(), key("k", strings([], 1 << 20))])

    server.data = head + (entry + bytes(length)) * 20
    program = PROGRAM.replace("try:", "import agent.header.remote as remote\nremote.MOST = 6\ntry:")
    assert "goes on behind 6 blocks" in ask(server, program=program)
    assert len(server.asked) <= 7


@pytest.mark.parametrize("token", ["hf_S\u00e9cret", "hf_S ecret"])
def test_a_token_that_no_header_carries_is_named(server: Server, token: str) -> None:
    """Refused before it is sent, and not shown."""
    answer = ask(server, token=token)
    assert "the token in HF_TOKEN" in answer
    assert "cret" not in answer
    assert server.asked == []


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
