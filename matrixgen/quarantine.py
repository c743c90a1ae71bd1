"""Quarantine: legs that are not planned for a while, each with a reason, a ticket and a last day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Quarantined(NamedTuple):
    """One entry of quarantine.json. `backend` None stands for all; `expires` is the last day, YYYY-MM-DD."""

    family: str
    backend: str | None
    reason: str
    ticket: str
    expires: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Quarantined:
        """From an entry that matches the schema."""
        return cls(**data)

    @property
    def said(self) -> str:
        """Why a leg is not planned."""
        return f"in quarantine until {self.expires}: {self.reason} ({self.ticket})"

    def expired(self, today: str) -> bool:
        """True after the last day. `today` is YYYY-MM-DD, so that text order is the order of days."""
        return today > self.expires


class Quarantine:
    """Looks up the entry that keeps a leg from being planned."""

    def __init__(self, entries: Iterable[Quarantined]) -> None:
        self._entries = {(entry.family, entry.backend): entry for entry in entries}

    def of(self, family: str, backend: str) -> Quarantined | None:
        """The entry for the backend, else the one for all backends."""
        return self._entries.get((family, backend)) or self._entries.get((family, None))
