"""Small text files that a user names: read whole, but never a device, a pipe or a file that is no text of this kind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from agent.errors import FileUnreadable

_MOST_BYTES = 64 * 2**20  # the largest known queue of patches has 2 MB, the largest Rust file of bindings 5 MB


def read_named(path: Path, *, errors: str = "strict") -> str:
    """The text of a file, UTF-8.

    Args:
        path: a regular file of at most 64 MiB; links are followed.
        errors: what becomes of bytes that are no UTF-8, as in `bytes.decode`.

    Raises:
        FileUnreadable: it is not there, no such file, no text, or may not be read.
    """
    try:
        # without O_NONBLOCK, opening a named pipe waits for a writer
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
                raise FileUnreadable(
                    f"{path} is no regular file of up to {_MOST_BYTES >> 20} MiB: name the text itself"
                )
            return file.read(_MOST_BYTES + 1).decode("utf-8", errors)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileUnreadable(f"{path} cannot be read ({reason}): check the path and its permissions") from error
