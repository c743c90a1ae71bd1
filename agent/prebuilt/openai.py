"""A client of the product's OpenAI-compatible server: one greedy request, its answer token by token.

The server refuses `logprobs`, so tokens are told apart by the pieces of a streamed answer. It sends one piece a token, except
where a token alone is no whole character.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.errors import RequestRefused, ServerDied, ServerSilent

if TYPE_CHECKING:
    import requests

_CONNECT_SECONDS = 10.0
_DONE = "[DONE]"
_SHOWN = 300


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer.

    Attributes:
        pieces: what was streamed, in order.
        finish: why it ended: ``length``, ``stop``; None where the server did not say.
        prompt_tokens, completion_tokens: as the server counted; None where it did not.
        cached_tokens: tokens of the prompt that came from a prefix cache; 0 where the server says nothing of it.
    """

    pieces: tuple[str, ...]
    finish: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.pieces)


def served_models(base: str, seconds: float) -> tuple[str, ...] | None:
    """The ids that a server lists; None while it does not answer, or answers something else."""
    import requests

    try:
        with _session() as session:
            answer = session.get(f"{base}/v1/models", timeout=seconds)
            return tuple(str(entry["id"]) for entry in answer.json()["data"]) if answer.ok else None
    except (requests.RequestException, ValueError, KeyError, TypeError):
        return None


def ask(base: str, model: str, prompt: str, max_tokens: int, seconds: float) -> Answer:
    """Send one greedy request and follow its answer, at most `seconds`.

    Raises:
        RequestRefused: another status than 200.
        ServerDied: the connection broke, or the answer is not whole.
        ServerSilent: no answer in time.
    """
    import requests

    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    deadline = time.monotonic() + seconds
    try:
        with (
            _session() as session,
            session.post(
                f"{base}/v1/chat/completions", json=body, stream=True, timeout=(_CONNECT_SECONDS, seconds)
            ) as response,
        ):
            if response.status_code != 200:
                raise RequestRefused(f"it answers {response.status_code}: {response.text[:_SHOWN]}")
            return _collect(_events(response, deadline, seconds))
    except requests.Timeout as error:
        raise ServerSilent(f"it gave no answer within {seconds:.0f} s") from error
    except requests.RequestException as error:
        if time.monotonic() >= deadline:
            raise ServerSilent(f"it gave no answer within {seconds:.0f} s") from error
        raise ServerDied(f"the connection broke: {type(error).__name__}") from error


def _session() -> contextlib.AbstractContextManager[requests.Session]:
    import requests

    session = requests.Session()
    session.trust_env = False  # a proxy of the environment is not for this machine's own ports
    return session


def _events(response: requests.Response, deadline: float, seconds: float) -> Iterator[dict[str, Any]]:
    """The events of a stream, up to its end mark.

    Raises:
        ServerSilent, ServerDied: it takes too long, or ends before the mark.
    """
    for line in response.iter_lines():
        if time.monotonic() >= deadline:
            raise ServerSilent(f"its answer did not end within {seconds:.0f} s")
        name, _, value = line.decode("utf-8", "replace").partition(":")
        if name != "data":
            continue
        if value.strip() == _DONE:
            return
        try:
            event = json.loads(value)
        except ValueError as error:
            raise ServerDied(f"its answer holds what is no JSON: {value.strip()[:_SHOWN]}") from error
        if not isinstance(event, dict) or "error" in event:
            raise RequestRefused(f"it breaks its answer off: {value.strip()[:_SHOWN]}")
        yield event
    raise ServerDied(f"its answer ends without {_DONE}, so nobody knows whether it is whole")


def _collect(events: Iterator[dict[str, Any]]) -> Answer:
    pieces: list[str] = []
    finish: str | None = None
    usage: dict[str, Any] = {}
    for event in events:
        usage = event.get("usage") or usage
        for choice in event.get("choices", ()):
            piece = (choice.get("delta") or {}).get("content")
            if piece:
                pieces.append(piece)
            finish = choice.get("finish_reason") or finish
    return Answer(
        pieces=tuple(pieces),
        finish=finish,
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        cached_tokens=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
    )
