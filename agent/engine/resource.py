"""What holds native memory until it is closed."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Resource:
    """Free it with `close`, or use it as a context manager, which does that."""

    def close(self) -> None:
        """Free what is held; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
