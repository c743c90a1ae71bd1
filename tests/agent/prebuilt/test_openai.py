"""The client of the HTTP surface, against a server that breaks each promise in turn."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agent.errors import AgentError, RequestRefused, ServerDied, ServerSilent
from agent.prebuilt.openai import Answer, ask, served_models
from agent.prebuilt.ports import free_ports

Send = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Send], str]]:
    """Serve every request with a function; gives the address."""
    servers: list[ThreadingHTTPServer] = []

    def start(send: Send) -> str:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Silent."""

            def do_GET(self) -> None:
                send(self)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                send(self)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def stream(*lines: str, status: int = 200) -> Send:
    """An answer of these lines."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write("".join(f"{line}\n\n" for line in lines).encode())

    return send


def data(**event: object) -> str:
    """One event of a stream."""
    return f"data: {json.dumps(event)}"


def piece(text: str, finish: str | None = None) -> str:
    """An event with a piece of the answer."""
    return data(choices=[{"delta": {"content": text}, "finish_reason": finish}])


def test_an_answer_is_collected(serve: Callable[[Send], str]) -> None:
    """Pieces in order, the reason of the end, the counts; comments and empty pieces are nothing."""
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
    base = serve(
        stream(": hello", data(choices=[{"delta": {"role": "assistant"}}]), piece("a"), piece(""), piece("ü", "length"),
               data(choices=[], usage=usage), "data: [DONE]")
    )  # fmt: skip
    found = ask(base, "m", "prompt", 2, 5)
    assert found == Answer(pieces=("a", "ü"), finish="length", prompt_tokens=7, completion_tokens=2, cached_tokens=3)
    assert found.text == "aü"


def slowly(handler: BaseHTTPRequestHandler) -> None:
    """A piece every moment, without an end."""
    stream(piece("a"))(handler)
    for _ in range(50):
        time.sleep(0.1)
        try:
            handler.wfile.write(f"{piece('a')}\n\n".encode())
        except OSError:
            return


def never(_handler: BaseHTTPRequestHandler) -> None:
    """No answer."""
    time.sleep(3)


@pytest.mark.parametrize(
    ("send", "cause", "words"),
    [
        (stream('{"error":{"code":"unsupported_model_feature"}}', status=400), RequestRefused, "answers 400: {"),
        (stream("oops", status=500), RequestRefused, "answers 500: oops"),
        (stream(piece("a")), ServerDied, r"ends without \[DONE\]"),
        (stream(), ServerDied, r"ends without \[DONE\]"),
        (stream(piece("a"), "data: {half"), ServerDied, "what is no JSON"),
        (
            stream(piece("a"), data(error={"message": "stage lost"})),
            RequestRefused,
            "breaks its answer off: .*stage lost",
        ),
        (slowly, ServerSilent, "did not end within 1 s"),
        (never, ServerSilent, "no answer within 1 s"),
    ],
)
def test_a_promise_that_is_broken(
    send: Send, cause: type[AgentError], words: str, serve: Callable[[Send], str]
) -> None:
    """A refusal, half an answer, an error in the middle, an answer that never ends: each has its class."""
    with pytest.raises(cause, match=words):
        ask(serve(send), "m", "prompt", 2, 1)


def test_nobody_listens() -> None:
    """A connection that is refused is a dead server."""
    (port,) = free_ports(1)
    with pytest.raises(ServerDied, match="the connection broke"):
        ask(f"http://127.0.0.1:{port}", "m", "prompt", 2, 5)
    assert served_models(f"http://127.0.0.1:{port}", 1) is None


def test_a_proxy_of_the_environment_is_not_used(serve: Callable[[Send], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports of this machine are asked directly."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert served_models(serve(stream('{"data":[{"id":"a"},{"id":"b"}]}')), 5) == ("a", "b")


@pytest.mark.parametrize("text", ["<html>", "[]", '{"data":[1]}', '{"data":null}'])
def test_a_list_of_models_that_is_none(text: str, serve: Callable[[Send], str]) -> None:
    """Whatever else answers on the port is not the server."""
    assert served_models(serve(stream(text)), 5) is None
