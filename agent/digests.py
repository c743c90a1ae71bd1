"""Digests of files and of the libraries of a build."""

from __future__ import annotations

import hashlib
from pathlib import Path

from agent.errors import FileUnreadable


def sha256_of_file(path: Path) -> str:
    """64 lower-case hex digits.

    Raises:
        FileUnreadable: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileUnreadable(f"{path} cannot be read ({error.strerror}): check the path and its permissions") from error


def library_digests(folder: Path) -> dict[str, str]:
    """sha256 of every shared library in `folder`, by name; of a library and its links, one name is listed."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("lib*")):
        if path.suffix in (".so", ".dylib") and path.is_file():
            found[path.name] = sha256_of_file(path)
    return found
