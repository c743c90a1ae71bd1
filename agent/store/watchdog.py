"""Ends transfers that go on for ever without getting anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.errors import Stalled

if TYPE_CHECKING:
    from agent.store.patience import Patience


def watched(chunks: Iterator[bytes], patience: Patience) -> Iterator[bytes]:
    """Pass chunks on. A connection that is silent is the time-out's business, this one's is a trickle.

    Raises:
        Stalled: fewer bytes than `stall_bytes` came within `stall_window` seconds.
    """
    since, got = time.monotonic(), 0
    for chunk in chunks:
        got += len(chunk)
        yield chunk
        seconds = time.monotonic() - since
        if seconds >= patience.stall_window:
            if got < patience.stall_bytes:
                raise Stalled(f"{got} bytes in {seconds:.1f} s: the transfer would hardly ever end")
            since, got = time.monotonic(), 0
