"""How the stand-ins pass activations along: one JSON object a line over TCP. The product's own protocol is another one.

As in the product, a stage says that it is ready on each new connection, and who connects tries again until it hears that.
"""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Mapping
from typing import Any

Message = Mapping[str, Any]
READY = b"ready\n"


class Downstream:
    """A connection to the next stage."""

    def __init__(self, endpoint: str, seconds: float = 10.0) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._socket = socket.create_connection((host, int(port)), 1)
                self._file = self._socket.makefile("rwb")
                if self._file.readline() == READY:
                    self._socket.settimeout(60)
                    return
                raise ConnectionError("the next stage is not ready")
            except OSError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    def call(self, message: Message) -> Message:
        """Send a message and wait for the answer."""
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise ConnectionError("the next stage closed the connection")
        answer: Message = json.loads(line)
        return answer

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()


def packed(frames: list[bytes]) -> list[str]:
    """Frames as text."""
    return [base64.b64encode(frame).decode() for frame in frames]


def unpacked(frames: list[str]) -> list[bytes]:
    """The inverse of `packed`."""
    return [base64.b64decode(frame) for frame in frames]
