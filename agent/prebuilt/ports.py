"""Free ports on this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
from collections.abc import Iterable
from pathlib import Path

HOST = "127.0.0.1"
# below what systems give to outgoing connections (Linux from 32768, others from 49152), which may take any of those at any time
_RANGE = range(20000, 32768)


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different ports that nobody listens on; they may be gone again before they are used, which callers find out.

    Raises:
        OSError: there are not so many.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.sample(_RANGE, len(_RANGE)):  # by chance, so that two agents rarely choose the same
            if len(found) == count:
                break
            with contextlib.suppress(OSError):
                # each is held until the last one is known, so that nobody gets it meanwhile
                stack.enter_context(socket.socket()).bind((HOST, port))
                found.append(port)
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: no {count} free ports in {_RANGE}")
    return tuple(found)


def says_taken(words: str) -> bool:
    """True if a program's last words are that its port was in use, in the system's own words.

    Whoever had the port may have let it go since, so that nobody is found on it afterwards.
    """
    return os.strerror(errno.EADDRINUSE).lower() in words.lower()


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
