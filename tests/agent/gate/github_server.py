"""A GitHub API server over a real bare repository: the routes that publishing uses, with GitHub's own rules for references."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from agent.gate.producers import GITHUB_ACTIONS_APP
from tests.agent.gate.product import Product

REPOSITORY = "mesh/llm"
Answer = tuple[int, dict[str, Any] | list[Any] | str]


@dataclass
class Server:
    """The server, what it was asked, and what it shall do instead of its work.

    `instead` maps ``METHOD /path`` patterns to a fixed answer; `before` to something that happens first, once.
    """

    product: Product
    instead: dict[str, Answer] = field(default_factory=dict)
    before: dict[str, Callable[[], object]] = field(default_factory=dict)
    protected: bool = False
    truncated: bool = False
    asked: list[str] = field(default_factory=list)
    bodies: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Read."""
                outer.serve(self)

            def do_POST(self) -> None:
                """Make."""
                outer.serve(self)

            def do_PATCH(self) -> None:
                """Change."""
                outer.serve(self)

            def log_message(self, *_: object) -> None:
                """Be quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        length = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(length) or b"{}")
        parts = urlsplit(handler.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        request = f"{handler.command} {path}"
        self.asked.append(request)
        self.bodies.append((request, body))
        for pattern in [pattern for pattern in self.before if re.search(pattern, request)]:
            self.before.pop(pattern)()
        fixed = next((answer for pattern, answer in self.instead.items() if re.search(pattern, request)), None)
        if handler.headers.get("Authorization") != "token t0ken":
            fixed = 401, {"message": "Bad credentials"}
        status, answer = fixed or self.answer(handler.command, path.removeprefix(f"/repos/{REPOSITORY}"), body, query)
        raw = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    def answer(self, method: str, path: str, body: Mapping[str, Any], query: Mapping[str, list[str]]) -> Answer:
        """Find the route."""
        for known, pattern, route in _ROUTES:
            found = re.fullmatch(pattern, path)
            if known == method and found:
                try:
                    return route(self, body, query, *found.groups())
                except AssertionError:  # git did not find the object
                    return 404, {"message": "Not Found"}
        return 404, {"message": "Not Found"}

    def at(self, path: str) -> str:
        """Address of an object."""
        return f"{self.url}/repos/{REPOSITORY}{path}"

    # -- routes --------------------------------------------------------------------------------------------------------

    def repository(self, _body: Any, _query: Any) -> Answer:
        """GET /repos/o/r"""
        return 200, {"id": 1, "name": "llm", "full_name": REPOSITORY, "url": self.at(""), "default_branch": "main"}

    def branch(self, _body: Any, _query: Any, name: str) -> Answer:
        """GET /branches/name"""
        tip = self.product.tip(name)
        commit = {"sha": tip, "url": self.at(f"/commits/{tip}")}
        return 200, {"name": name, "protected": self.protected, "commit": commit}

    def ref(self, _body: Any, _query: Any, name: str) -> Answer:
        """GET /git/ref/heads/name"""
        tip = self.product.tip(name)
        target = {"sha": tip, "type": "commit", "url": self.at(f"/git/commits/{tip}")}
        return 200, {"ref": f"refs/heads/{name}", "url": self.at(f"/git/refs/heads/{name}"), "object": target}

    def edit_ref(self, body: Mapping[str, Any], _query: Any, name: str) -> Answer:
        """PATCH /git/refs/heads/name"""
        assert body["force"] is False, "a forced update"
        if self.relation(self.product.tip(name), body["sha"]) != "ahead":
            return 422, {"message": "Update is not a fast forward", "documentation_url": "https://docs.github.com"}
        self.product.git("update-ref", f"refs/heads/{name}", body["sha"])
        return self.ref(None, None, name)

    def make_ref(self, body: Mapping[str, Any], _query: Any) -> Answer:
        """POST /git/refs"""
        name = body["ref"].removeprefix("refs/heads/")
        if name in self.product.branches():
            return 422, {"message": "Reference already exists"}
        self.product.git("update-ref", body["ref"], body["sha"])
        return 201, self.ref(None, None, name)[1]

    def commit(self, _body: Any, _query: Any, sha: str) -> Answer:
        """GET /git/commits/sha"""
        tree, *parents = self.product.git("log", "-1", "--format=%T %P", sha).split()
        found = {"sha": tree, "url": self.at(f"/git/trees/{tree}")}
        above = [{"sha": parent, "url": self.at(f"/git/commits/{parent}")} for parent in parents]
        return 200, {"sha": sha, "url": self.at(f"/git/commits/{sha}"), "tree": found, "parents": above}

    def make_commit(self, body: Mapping[str, Any], _query: Any) -> Answer:
        """POST /git/commits"""
        parents = [word for parent in body["parents"] for word in ("-p", parent)]
        made = self.product.git("commit-tree", body["tree"], *parents, given=body["message"].encode())
        return 201, self.commit(None, None, made)[1]

    def tree(self, _body: Any, query: Mapping[str, list[str]], sha: str) -> Answer:
        """GET /git/trees/sha"""
        assert query["recursive"] == ["1"]
        items = []
        for row in self.product.git("ls-tree", "-r", "-t", sha).splitlines():
            facts, _, path = row.partition("\t")
            mode, kind, oid = facts.split()
            items.append({"path": path, "mode": mode, "type": kind, "sha": oid, "url": self.at(f"/git/{kind}s/{oid}")})
        return 200, {"sha": sha, "url": self.at(f"/git/trees/{sha}"), "tree": items, "truncated": self.truncated}

    def make_tree(self, body: Mapping[str, Any], _query: Any) -> Answer:
        """POST /git/trees"""
        self.product.git("read-tree", body["base_tree"], index="api.index")
        for item in body["tree"]:
            blob = self.product.git("hash-object", "-w", "--stdin", given=item["content"].encode())
            self.product.git(
                "update-index", "--add", "--cacheinfo", f"{item['mode']},{blob},{item['path']}", index="api.index"
            )
        made = self.product.git("write-tree", index="api.index")
        return 201, {"sha": made, "url": self.at(f"/git/trees/{made}"), "tree": [], "truncated": False}

    def blob(self, _body: Any, _query: Any, sha: str) -> Answer:
        """GET /git/blobs/sha"""
        raw = subprocess.run(["git", "cat-file", "blob", sha], cwd=self.product.bare, capture_output=True, check=False)
        content = base64.encodebytes(raw.stdout).decode()
        return 200, {"sha": sha, "url": self.at(f"/git/blobs/{sha}"), "content": content, "encoding": "base64"}

    def make_blob(self, body: Mapping[str, Any], _query: Any) -> Answer:
        """POST /git/blobs"""
        made = self.product.git("hash-object", "-w", "--stdin", given=body["content"].encode())
        return 201, {"sha": made, "url": self.at(f"/git/blobs/{made}")}

    def compare(self, _body: Any, _query: Any, old: str, new: str) -> Answer:
        """GET /compare/old...new"""
        words = self.relation(old, new)
        return 200, {"status": words, "url": self.at(f"/compare/{old}...{new}"), "files": []}

    def relation(self, old: str, new: str) -> str:
        """How `new` stands to `old`, in GitHub's words."""
        behind, ahead = self.product.git("rev-list", "--left-right", "--count", f"{old}...{new}").split()
        status = {(True, True): "diverged", (True, False): "behind", (False, True): "ahead"}
        return status.get((behind != "0", ahead != "0"), "identical")

    def pull(self, body: Mapping[str, Any], _query: Any) -> Answer:
        """POST /pulls"""
        self.pulls.append(dict(body))
        return 201, {"number": 7, "url": self.at("/pulls/7"), "html_url": f"https://github.com/{REPOSITORY}/pull/7"}

    def make_check(self, body: Mapping[str, Any], _query: Any) -> Answer:
        """POST /check-runs"""
        number = 100 + len(self.checks)
        html = f"https://github.com/{REPOSITORY}/runs/{number}"
        made = {"id": number, "url": self.at(f"/check-runs/{number}"), "html_url": html, "details_url": html}
        self.checks.append({**body, **made, "app": {"id": GITHUB_ACTIONS_APP}})
        return 201, self.checks[-1]

    def any_commit(self, _body: Any, _query: Any, sha: str) -> Answer:
        """GET /commits/sha"""
        return 200, {"sha": sha, "url": self.at(f"/commits/{sha}")}

    def commit_checks(self, _body: Any, query: Mapping[str, list[str]], _sha: str) -> Answer:
        """GET /commits/sha/check-runs"""
        assert query["filter"] == ["all"]
        return 200, {"total_count": len(self.checks), "check_runs": self.checks}

    def run(self, _body: Any, _query: Any, run_id: str) -> Answer:
        """GET /actions/runs/id"""
        return (200, self.runs[run_id]) if run_id in self.runs else (404, {"message": "Not Found"})


_SHA = "([0-9a-f]{40})"
_ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", "", Server.repository),
    ("GET", "/branches/(.+)", Server.branch),
    ("GET", "/git/ref/heads/(.+)", Server.ref),
    ("PATCH", "/git/refs/heads/(.+)", Server.edit_ref),
    ("POST", "/git/refs", Server.make_ref),
    ("GET", f"/git/commits/{_SHA}", Server.commit),
    ("POST", "/git/commits", Server.make_commit),
    ("GET", f"/git/trees/{_SHA}", Server.tree),
    ("POST", "/git/trees", Server.make_tree),
    ("GET", f"/git/blobs/{_SHA}", Server.blob),
    ("POST", "/git/blobs", Server.make_blob),
    ("GET", rf"/compare/{_SHA}\.\.\.{_SHA}", Server.compare),
    ("POST", "/pulls", Server.pull),
    ("POST", "/check-runs", Server.make_check),
    ("GET", f"/commits/{_SHA}", Server.any_commit),
    ("GET", f"/commits/{_SHA}/check-runs", Server.commit_checks),
    ("GET", "/actions/runs/([0-9]+)", Server.run),
]
