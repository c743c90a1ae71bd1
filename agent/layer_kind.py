"""What kind of state a layer keeps: the word that the header, the graph and the cache policy share."""

from __future__ import annotations

from enum import StrEnum


class LayerKind(StrEnum):
    """Kind of the state that a layer keeps between decodes."""

    ATTENTION = "A"
    RECURRENT = "R"
    BOTH = "AR"
    NEITHER = "N"
    UNKNOWN = "?"

    @property
    def attention(self) -> bool:
        """The layer has attention."""
        return self in (LayerKind.ATTENTION, LayerKind.BOTH)

    @property
    def recurrent(self) -> bool:
        """The layer has recurrent state."""
        return self in (LayerKind.RECURRENT, LayerKind.BOTH)
