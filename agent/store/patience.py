"""How long to wait, how often to try: one object, handed down."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.errors import StoreError


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Times in seconds.

    Attributes:
        attempts: tries in a row without a new byte before a source is given up.
        first, longest: back-off after the first failure, and its upper end; it doubles in between.
        retry_after: the longest wait that a source may ask for.
        connect, read: time-outs of one connection and of one silence.
        stall_bytes, stall_window: a transfer with fewer bytes in a window is cut.
        holder: silence of a process that holds a lock, after which waiting for it ends.
        sleep: how to wait.
    """

    attempts: int = 5
    first: float = 1.0
    longest: float = 30.0
    retry_after: float = 300.0
    connect: float = 10.0
    read: float = 30.0
    stall_bytes: int = 256 * 1024
    stall_window: float = 60.0
    holder: float = 300.0
    sleep: Callable[[float], None] = time.sleep

    def delay(self, failures: int, error: StoreError) -> float | None:
        """Seconds to wait after so many failures in a row; None to give up."""
        if not error.transient or failures >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.retry_after else None
        ceiling: float = min(self.first * 2.0 ** (failures - 1), self.longest)
        return ceiling * (0.5 + secrets.randbelow(501) / 1000)  # so that a fleet does not come back at once
