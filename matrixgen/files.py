"""Write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from matrixgen.errors import CannotWrite

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def write_atomically(path: Path, text: str | Iterable[str]) -> None:
    """Replace `path` by `text`, or by all its parts (UTF-8, LF); on any error the old file stays. Raises CannotWrite."""
    import tempfile

    if path.is_dir():
        raise CannotWrite(f"cannot write {path}: it is a folder; give the name of a file")
    target = path.resolve() if path.is_symlink() else path
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)  # noqa: PTH101 - the temporary file is a plain name
        os.replace(temporary, target)  # noqa: PTH105
    except (OSError, ValueError) as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotWrite(f"cannot write {path}: {reason}; nothing was changed") from None


def sha256_of(path: Path) -> str:
    """SHA-256 of the bytes of a file, in hex. Raises InvalidValue."""
    import hashlib

    from matrixgen.errors import InvalidValue

    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidValue(f"cannot read {path}: {reason}; name the files of the corpus one by one") from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
