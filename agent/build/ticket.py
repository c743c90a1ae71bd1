"""The ticket of a build: a small file beside the archive that is found by the build key and says which archive it is.

A build key is known before the build is, its digest only after it; so a plan cannot name the digest. The ticket proves nothing:
the archive must have its digest, and what the archive records must be what the plan asks for.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from agent.digests import sha256_of_file
from matrixgen.files import write_atomically
from matrixgen.keys import TERMINATOR

MOST_BYTES = 64 * 2**10
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildTicket:
    """Which archive holds a build: its name beside the ticket, its bytes and their digest."""

    key: str
    file: str
    size: int
    sha256: str

    @classmethod
    def of(cls, archive: Path, key: str) -> Self:
        """The ticket of an archive on this machine."""
        return cls(key=key, file=archive.name, size=archive.stat().st_size, sha256=sha256_of_file(archive))

    @classmethod
    def parse(cls, data: bytes, key: str) -> Self:
        """From the bytes of a ticket. Raises ValueError unless it is one of the build `key`."""
        try:
            ticket = cls(**json.loads(data))
            sound = bool(_FILE.fullmatch(ticket.file) and _SHA256.fullmatch(ticket.sha256)) and type(ticket.size) is int
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{ticket_name(key)} is no ticket of a build ({error})") from None
        if not sound or ticket.size < 0:
            raise ValueError(f"{ticket_name(key)} is no ticket of a build: its name, size or digest is not one")
        if ticket.key != key:
            raise ValueError(f"{ticket_name(key)} is the ticket of another build, {ticket.key!r}")
        return ticket

    def write(self, folder: Path) -> Path:
        """Write it to `folder` under the name by which it is found. Raises CannotWrite."""
        path = folder / ticket_name(self.key)
        write_atomically(path, json.dumps(asdict(self)) + "\n")
        return path


def ticket_name(key: str) -> str:
    """The file name of the ticket of a build key: that of its artifact, and `.json`."""
    return f"{key.removesuffix(TERMINATOR)}.json"
