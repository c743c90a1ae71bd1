"""Who is told how a fetch gets on."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told by the store; shows, or not. Calls may come from several threads."""

    def begin(self, name: str, what: str, done: int, total: int) -> None:
        """Work on a file begins or begins anew: `what` is it, `done` of `total` bytes are behind it."""

    def advance(self, name: str, count: int) -> None:
        """`count` more bytes."""

    def end(self, name: str) -> None:
        """The work on a file is over."""

    def note(self, text: str) -> None:
        """Something worth a line: a retry, a source that lied, a wait."""


class Silence:
    """Says nothing."""

    def begin(self, name: str, what: str, done: int, total: int) -> None:
        """Say nothing."""

    def advance(self, name: str, count: int) -> None:
        """Say nothing."""

    def end(self, name: str) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""
