"""Free ports on this machine."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path

HOST = "127.0.0.1"


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different ports that nobody listens on; they may be gone again before they are used, which callers find out."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:  # all are held until the last one is known, so that no two are equal
            held.bind((HOST, 0))
        return tuple(int(held.getsockname()[1]) for held in sockets)


def is_taken(port: int) -> bool:
    """True if somebody listens on `port`. A bind would also fail on a connection that only lingers."""
    with socket.socket() as caller:
        caller.settimeout(1)
        return caller.connect_ex((HOST, port)) == 0


def listens(processes: Iterable[int], port: int) -> bool | None:
    """True if one of `processes` listens on `port`; None where the system does not say (no /proc)."""
    try:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return None
    # local address as hex "IP:PORT", state 0A is LISTEN, the tenth column is the inode of the socket (proc(5))
    sockets = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}
    return any(_holds(process, sockets) for process in processes)


def _holds(process: int, sockets: set[str]) -> bool:
    try:
        return any(str(entry.readlink()) in sockets for entry in Path(f"/proc/{process}/fd").iterdir())
    except OSError:  # it ended
        return False


def address(port: int) -> str:
    """``host:port`` as flags and stage configurations want it."""
    return f"{HOST}:{port}"
