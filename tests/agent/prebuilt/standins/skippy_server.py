"""Stands in for `skippy-server`, which cannot be had here: it is a Rust program linked with a patched llama.cpp.

Commands, flags, stage configuration, HTTP surface and exit codes are those of the product; the model is a toy and the protocol
between stages is the stand-ins' own. It really listens, really sends activations over sockets, and really generates tokens.

`STANDIN_FAULT` chooses a failure: mismatch, late-error, cache-loses-state, crosstalk, stage-crash, stage-exit, stage-silent,
stage-oom, refuse, hang-answer, break-answer, drip, empty-answer, other-end, unsteady, http-crash, other-model.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.agent.prebuilt.standins.clap import Command, Flag, parse
from tests.agent.prebuilt.standins.toy import Layers, decode, encode, fault, piece, seeded_position, tokenize
from tests.agent.prebuilt.standins.wire import READY, Downstream, Message, packed, unpacked

RAW = os.environ.get("STANDIN_RELEASE") == "raw-f32"
_WIRE = () if RAW else (Flag("--activation-width", required=True), Flag("--activation-wire-dtype", default="f16"))
COMMANDS = (
    Command("serve", (Flag("--config", required=True), Flag("--bind-addr"))),
    Command(
        "serve-binary",
        (
            Flag("--config", required=True),
            Flag("--topology"),
            Flag("--bind-addr"),
            *_WIRE,
            Flag("--max-inflight", default="4"),
            Flag("--openai-bind-addr"),
            Flag("--openai-model-id"),
            Flag("--openai-default-max-tokens", default="16"),
            Flag("--openai-generation-concurrency", default="1"),
            Flag("--openai-prefill-chunk-size", default="256"),
            Flag("--openai-prefill-chunk-policy", default="adaptive-ramp"),
        ),
    ),
    Command(
        "serve-openai",
        (
            Flag("--config", required=True),
            Flag("--topology"),
            Flag("--bind-addr", default="127.0.0.1:9337"),
            Flag("--default-max-tokens", default="16"),
            Flag("--prefill-chunk-size", default="256"),
        ),
    ),
    Command("example-config", ()),
)


class Stage:
    """The layers of one process, and the connection to the next one."""

    def __init__(self, config: Mapping[str, Any], wire: str, chunk: int) -> None:
        index = int(config["stage_index"])
        model = Path(config["model_path"])
        self.index = index
        self.layers = Layers(model, int(config["layer_start"]), int(config["layer_end"]), seeded_position(index))
        self.wire = wire
        self.chunk = chunk
        self.cache = (config.get("kv_cache") or {}).get("mode") == "lookup-record"
        self.minimum = int((config.get("kv_cache") or {}).get("min_tokens", 64))
        self.recorded: set[str] = set()
        self.next_endpoint = (config.get("downstream") or {}).get("endpoint")
        self.lock = threading.Lock()

    def connect(self) -> Downstream | None:
        """A connection to the next stage; None for the last one."""
        return Downstream(self.next_endpoint) if self.next_endpoint else None

    def handle(self, message: Message, after: Downstream | None) -> Message:
        """Do what a message says, here and in the stages behind."""
        if message["op"] == "step":
            return self._step(message, after)
        with self.lock:
            if message["op"] == "keep":
                self.layers.keep(message["sequence"], message["name"])
            else:
                self.layers.restore(message["name"], message["sequence"])
        return after.call(message) if after else {"ok": True}

    def _step(self, message: Message, after: Downstream | None) -> Message:
        if self.index and fault() == "stage-crash":
            sys.stderr.write("GGML_ASSERT(n_nodes < max) failed\n")
            sys.stderr.flush()
            _die(signal.SIGSEGV)
        if self.index and fault() == "stage-oom":
            _die(signal.SIGKILL)
        if self.index and fault() == "crosstalk" and len(self.layers.states) > 8:  # when others came before
            message = {**message, "sequence": "everybody"}
        frames = []
        with self.lock:
            for position, frame in zip(message["positions"], unpacked(message["frames"]), strict=True):
                values = self.layers.run(message["sequence"], position, decode(frame, self.wire))
                frames.append(values)
        if after is None:
            return {"token": self.layers.token(frames[-1])}
        return after.call({**message, "frames": packed([encode(values, self.wire) for values in frames])})

    def generate(self, prompt: list[int], count: int) -> Iterator[tuple[int, int]]:
        """Yield (token, tokens of the prompt that came from the cache)."""
        sequence, key = f"{threading.get_ident()}-{time.monotonic_ns()}", " ".join(map(str, prompt[:-1]))
        after = self.connect()
        try:
            cached = 0
            if self.cache and key in self.recorded:
                self.handle({"op": "restore", "name": key, "sequence": sequence}, after)
                cached = len(prompt) - 1
            head = prompt[cached:-1]
            for start in range(0, len(head), self.chunk):
                self._send(sequence, cached + start, head[start : start + self.chunk], after)
            if self.cache and not cached and len(prompt) > self.minimum:
                self.handle({"op": "keep", "name": key, "sequence": sequence}, after)
                self.recorded.add(key)
            last = prompt[-1]
            for position in range(len(prompt) - 1, len(prompt) - 1 + count):
                last = int(self._send(sequence, position, [last], after)["token"])
                if fault() == "unsteady":
                    last = random.randrange(64)
                yield last, cached
        finally:
            if after:
                after.close()

    def _send(self, sequence: str, position: int, tokens: list[int], after: Downstream | None) -> Message:
        """Run tokens through this stage, whose input needs no wire, and the ones behind."""
        with self.lock:
            frames = [
                self.layers.run(sequence, position + place, self.layers.embed(token))
                for place, token in enumerate(tokens)
            ]
        if after is None:
            return {"token": self.layers.token(frames[-1])}
        return after.call(
            {
                "op": "step",
                "sequence": sequence,
                "positions": [position + place for place in range(len(tokens))],
                "frames": packed([encode(values, self.wire) for values in frames]),
            }
        )


def main() -> int:
    """Serve."""
    command, values = parse("skippy-server", "Llama staged-runtime server", COMMANDS, sys.argv[1:])
    config = json.loads(Path(values["--config"]).read_text(encoding="utf-8"))
    if config["n_gpu_layers"] and (log := os.environ.get("STANDIN_GPU_LOG")):
        sys.stderr.write(f"{log}\n")
    chunk = int(values.get("--openai-prefill-chunk-size", values.get("--prefill-chunk-size", "256")))
    stage = Stage(config, values.get("--activation-wire-dtype", "f32"), chunk)
    if command == "serve-openai":
        _serve_http(stage, config, values["--bind-addr"], split=False)
        return 0
    if stage.index and fault() == "stage-exit":
        sys.stderr.write("Error: no KV cache layers selected by layer range\n")
        return 1
    if stage.index and fault() == "stage-silent":
        time.sleep(600)
    address = values.get("--bind-addr", config["bind_addr"])
    if "--openai-bind-addr" in values:
        threading.Thread(target=_serve_http, args=(stage, config, values["--openai-bind-addr"]), daemon=True).start()
    _serve_stage(stage, address)
    return 0


def _serve_stage(stage: Stage, address: str) -> None:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            after: Downstream | None = None
            self.wfile.write(READY)
            for line in self.rfile:
                after = after or stage.connect()
                self.wfile.write(json.dumps(stage.handle(json.loads(line), after)).encode() + b"\n")
            if after:
                after.close()

    with _Server(_pair(address), Handler) as server:
        server.serve_forever()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True  # as Rust's listeners do: the connections of a server before may still linger


def _serve_http(stage: Stage, config: Mapping[str, Any], address: str, split: bool = True) -> None:
    wrong = fault() if split or fault() in ("unsteady", "empty-answer") else ""
    model_id = "somebody/else:Q4" if wrong == "other-model" else config["model_id"]
    handler = type("Handler", (_Handler,), {"stage": stage, "wrong": wrong, "model_id": model_id})
    with ThreadingHTTPServer(_pair(address), handler) as server:
        server.serve_forever()


class _Handler(BaseHTTPRequestHandler):
    """The HTTP surface: a list of models, and streamed chat completions."""

    protocol_version = "HTTP/1.0"
    stage: Stage
    wrong: str
    model_id: str

    def log_message(self, *_: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._json(200, {"object": "list", "data": [{"id": self.model_id, "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.wrong == "http-crash":
            _die(signal.SIGABRT)
        if self.wrong == "hang-answer":
            time.sleep(600)
        if body["model"] != self.model_id:
            self._json(404, {"error": {"code": "model_not_found"}})
        elif "logprobs" in body:
            self._json(400, {"error": {"code": "unsupported_model_feature"}})
        elif self.wrong == "refuse":
            self._json(500, {"error": {"message": "stage protocol mismatch"}})
        else:
            self._stream(tokenize(body["messages"][0]["content"]), int(body["max_tokens"]))

    def _stream(self, prompt: list[int], count: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._choice({"role": "assistant"}, None)
        tokens = cached = 0
        for token, used in self.stage.generate(prompt, 0 if self.wrong == "empty-answer" else count):
            tokens, cached = tokens + 1, used
            self._choice({"content": piece(token)}, None)
            if self.wrong == "break-answer" and tokens == 5:
                return
            if self.wrong == "drip":
                time.sleep(0.2)
        self._choice({}, "stop" if self.wrong == "other-end" else "length")
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": tokens,
            "total_tokens": len(prompt) + tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _choice(self, delta: Mapping[str, str], finish: str | None) -> None:
        self._event({"object": "chat.completion.chunk", "choices": [{"delta": delta, "finish_reason": finish}]})

    def _event(self, event: Mapping[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _json(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _die(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(600)  # the signal may reach another thread first


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
