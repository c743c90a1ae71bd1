"""A server that speaks the hub's protocol to the real client, and can misbehave on request."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n"
HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in to continue</body></html>"
XML = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>no</Message></Error>'


@dataclass
class Hub:
    """What the server holds and how it behaves. Fields may be changed while it runs.

    Attributes:
        files: (repo, revision, path) -> bytes.
        head, get: statuses to answer with, one a request, before it behaves again; (status, headers).
        body: bytes to send in place of each file, with 200.
        announce: headers of a HEAD that replace the true ones; None leaves one out.
        cut: after so many bytes of an answer the connection is closed.
        ranges: whether Range is understood.
        chunked: answers do not say how long they are.
        slow_start: after so many bytes of an answer it pauses for more than a second.
        rate: bytes a second; None for as fast as it goes.
        token: the only one that opens it; None for a public one.
        cdn: where bytes are redirected to; None to send them from here.
        date: what the clock of the server says, in seconds of difference.
    """

    files: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    head: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    get: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    body: bytes | None = None
    announce: dict[str, str | None] = field(default_factory=dict)
    cut: int | None = None
    ranges: bool = True
    chunked: bool = False
    slow_start: int | None = None
    rate: float | None = None
    token: str | None = None
    cdn: str | None = None
    date: float = 0.0
    address: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    sent: int = 0

    def gets(self) -> int:
        """GET requests so far."""
        return self.requests["GET"]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002 - the base class gives it
        """The server's clock."""
        return formatdate(time.time() + self.hub.date, usegmt=True)

    def do_HEAD(self) -> None:
        """Announce a file."""
        self._serve(self.hub.head)

    def do_GET(self) -> None:
        """Send a file."""
        self._serve(self.hub.get)

    def _serve(self, planned: list[tuple[int, dict[str, str]]]) -> None:
        hub = self.hub
        hub.requests[self.command] += 1
        hub.seen.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}))
        if planned:
            status, headers = planned.pop(0)
            self._refuse(status, headers)
            return
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}" and "/cdn/" not in self.path:
            self._refuse(401, {"X-Error-Message": "Invalid username or password."})
            return
        found = re.fullmatch(r"(?:/cdn)?/([^/]+/[^/]+)/resolve/([^/]+)/([^?]+)(?:\?.*)?", self.path)
        if not found:
            self._refuse(404, {})
            return
        repo, revision, path = found.groups()
        data = hub.files.get((repo, revision, path))
        if data is None:
            repos, revisions = {key[0] for key in hub.files}, {key[:2] for key in hub.files}
            code = "EntryNotFound" if (repo, revision) in revisions else "RevisionNotFound"
            code = code if repo in repos else "RepoNotFound"
            self._refuse(404, {"X-Error-Code": code, "X-Error-Message": code})
        elif self.command == "HEAD":
            self._announce(data, revision)
        else:
            self._send(data)

    def _announce(self, data: bytes, revision: str) -> None:
        import hashlib

        headers: dict[str, str | None] = {
            "X-Repo-Commit": revision,
            "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Linked-Size": str(len(data)),
            "ETag": '"0123"',
            "Accept-Ranges": "bytes",
        }
        headers |= self.hub.announce
        if self.hub.cdn:
            self.send_response(302)
            headers |= {
                "Location": f"{self.hub.cdn}/cdn{self.path}?X-Amz-Signature=c0ffee&Expires=1",
                "Content-Length": "0",
            }
        else:
            self.send_response(200)
            headers |= {"Content-Length": str(len(data))}
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()

    def _send(self, data: bytes) -> None:
        hub = self.hub
        if hub.body is not None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if hub.chunked:
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header("Content-Length", str(len(hub.body)))
            self.end_headers()
            self._write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(hub.body), hub.body) if hub.chunked else hub.body)
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = 0, len(data)
        if wanted and hub.ranges:
            start, end = int(wanted[1]), min(int(wanted[2] or len(data) - 1) + 1, len(data))
            if start >= len(data):
                self._refuse(416, {"Content-Range": f"bytes */{len(data)}"})
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self._write(data[start:end])

    def _write(self, data: bytes) -> None:
        hub = self.hub
        if hub.cut is not None and len(data) > hub.cut:
            data = data[: hub.cut]
            self.close_connection = True
        step = len(data) or 1 if hub.rate is None else max(1, int(hub.rate / 50))
        if hub.slow_start:
            self.wfile.write(data[: hub.slow_start])
            self.wfile.flush()
            hub.sent += hub.slow_start
            data = data[hub.slow_start :]
            time.sleep(1.2)
        with contextlib.suppress(ConnectionError):
            for offset in range(0, len(data), step):
                self.wfile.write(data[offset : offset + step])
                self.wfile.flush()
                hub.sent += min(step, len(data) - offset)
                if hub.rate is not None:
                    time.sleep(0.02)

    def _refuse(self, status: int, headers: dict[str, str]) -> None:
        body = json.dumps({"error": status}).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client that was killed is no news."""


@contextlib.contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Run a hub for the length of a block."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with _Server(("127.0.0.1", 0), handler) as server:
        hub.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
