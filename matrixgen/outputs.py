"""The GITHUB_OUTPUT file: every value in here-document form, with a delimiter that is proven absent from it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from matrixgen.errors import CannotWrite, InvalidValue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"


def frame(outputs: Mapping[str, str]) -> str:
    """The text to append. Raises InvalidValue for a bad name or a value that is not Unicode text."""
    blocks = []
    for name, value in outputs.items():
        if not re.fullmatch(_NAME, name):
            raise InvalidValue(f"output name {name!r} must be letters, digits, _ or -, and not start with a digit")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidValue(f"output {name} holds half of a surrogate pair; remove it from the manifest") from None
        delimiter = f"EOF_{os.urandom(16).hex()}"
        while delimiter in value:
            delimiter = f"EOF_{os.urandom(16).hex()}"
        blocks.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(blocks)


def append_outputs(path: Path, outputs: Mapping[str, str]) -> None:
    """Append all outputs in one write; when one is bad, none is written. Raises CannotWrite or InvalidValue."""
    text = frame(outputs)
    try:
        if path.is_file() and _last_byte(path) not in (b"", b"\n"):
            text = "\n" + text
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotWrite(f"cannot append to GITHUB_OUTPUT {path}: {reason}; unset it to print only") from None


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return file.read(1)
