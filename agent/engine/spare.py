"""Sessions that are used again: to create a context costs as much as several decodes."""

from __future__ import annotations

from agent.engine.model import Model
from agent.engine.session import Session, Shape

_MOST = 4  # contexts of a model that wait; each holds the memory of its graphs


class SpareSession(Session):
    """A session that waits on its model for the next one who wants its shape, empty, once it is closed."""

    lent = True

    def close(self) -> None:
        """Let the context wait; one in which a decode failed is freed."""
        if not self.lent:
            return
        self.lent = False
        if not self.sound:
            self.free()
            return
        self.clear()
        self.model.spares.append(self)
        if len(self.model.spares) > _MOST:
            self.model.spares.pop(0).free()

    def free(self) -> None:
        """Free the context."""
        super().close()


def session_of(model: Model, shape: Shape) -> Session:
    """An empty session of `shape`: one that waits, else a new one.

    Raises:
        ContextFailed: llama.cpp creates no context.
    """
    for place, spare in enumerate(model.spares):
        if isinstance(spare, SpareSession) and spare.shape == shape:
            del model.spares[place]
            spare.lent = True
            return spare
    return SpareSession(model, shape)
