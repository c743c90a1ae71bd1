"""Read a JSON file that somebody else wrote, and know the line of every value in it.

The happy path is the standard library's C scanner. Only when something is wrong is the text walked again, to give each
JSON pointer its line.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from matrixgen.errors import ManifestUnreadable
from matrixgen.findings import Finding

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
_BAD_TEXT = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]"
_MAY_HIDE_BAD_TEXT = r"\\u(?:00[01]|007[fF]|[dD][89a-fA-F])|\\[bf]|\x7f"
_WORD = r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+'


class Document(NamedTuple):
    """A parsed file: `data` is the JSON value, or None where `findings` says why there is none."""

    name: str
    text: str
    data: Any
    findings: tuple[Finding, ...] = ()

    def lines(self) -> dict[str, int]:
        """JSON pointer -> 1-based line of the value. Empty where the text is not JSON."""
        return _walk(self.text)[0] if self.data is not None else {}

    def line(self, pointer: str, lines: dict[str, int]) -> int:
        """Line of `pointer`, or of the nearest parent that exists."""
        while pointer and pointer not in lines:
            pointer = pointer.rpartition("/")[0]
        return lines.get(pointer, 1)


class _DuplicateKeyError(Exception):
    """An object has the same key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _DuplicateKeyError
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> float:
    """A float, as an integer where it is one, so that 1 and 1.0 are the same value in digests."""
    value = float(text)
    return int(value) if value.is_integer() else value


def read_text(path: Path) -> str:
    """The text of a manifest file.

    Raises ManifestUnreadable for a missing file, a folder, a device, more than MAX_BYTES, or bytes that are not UTF-8.
    """
    try:
        if not path.is_file():
            kind = "is a folder, not a file" if path.is_dir() else "does not exist"
            raise ManifestUnreadable(f"{path} {kind}", "restore it, or give another folder with --manifests")
        if path.stat().st_size > MAX_BYTES:
            raise ManifestUnreadable(f"{path} has more than {MAX_BYTES} bytes", "a manifest file has a few hundred KiB")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ManifestUnreadable(
            f"{path} is not UTF-8: byte {error.start} is 0x{byte:02x}", "save it as UTF-8"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ManifestUnreadable(f"cannot read {path}: {reason}", "check the path and its permissions") from None


def _error(id_: str, name: str, line: int, message: str, fix: str, pointer: str = "") -> Finding:
    return Finding(id=id_, severity="error", file=name, pointer=pointer, line=line, message=message, fix=fix)


def parse(name: str, text: str) -> Document:
    """Parse `text`; problems come back as findings, never as an exception."""

    def broken(id_: str, line: int, message: str, fix: str) -> Document:
        return Document(name=name, text=text, data=None, findings=(_error(id_, name, line, message, fix),))

    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_number)
    except _DuplicateKeyError:
        _, duplicates = _walk(text)
        return Document(
            name=name,
            text=text,
            data=None,
            findings=tuple(
                _error("MG003", name, line, "this key is already in the same object", "keep one of the two", pointer)
                for pointer, line in duplicates
            ),
        )
    except json.JSONDecodeError as error:
        what = "the file is empty" if not text.strip() else f"not JSON: {error.msg} at column {error.colno}"
        return broken("MG002", error.lineno, what, "correct the syntax; `matrixgen fmt` writes the canonical form")
    except RecursionError:
        return Document(name=name, text=text, data=None, findings=tuple(too_deep(name, text)))
    except ValueError as error:
        return broken(
            "MG002", 1, f"not JSON that can be used: {str(error).split(';', maxsplit=1)[0]}", "use plain numbers"
        )
    if data is None:
        return broken("MG010", 1, "the file holds null", "write the object that the schema describes")
    document = Document(name=name, text=text, data=data)
    if re.search(_MAY_HIDE_BAD_TEXT, text):
        return Document(name=name, text=text, data=data, findings=tuple(_bad_text(document)))
    return document


def too_deep(name: str, text: str) -> list[Finding]:
    """A finding at the line where the nesting passes MAX_DEPTH; brackets inside strings are left out."""
    depth = 0
    for match in re.finditer(_WORD, text, re.DOTALL):
        word = match[0]
        if word in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, match.start()) + 1
                message = f"nested deeper than {MAX_DEPTH} levels"
                return [_error("MG004", name, line, message, "remove the nesting")]
        elif word in "]}":
            depth -= 1
    return []


def escape(key: str) -> str:
    """One reference token of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _bad_text(document: Document) -> list[Finding]:
    """Findings for every string or key with control characters or lone surrogates."""
    found: list[Finding] = []
    lines = document.lines()
    stack: list[tuple[str, Any]] = [("", document.data)]
    while stack:
        pointer, value = stack.pop()
        texts = [value] if isinstance(value, str) else list(value) if isinstance(value, dict) else []
        if any(re.search(_BAD_TEXT, text) for text in texts):
            what = "text with a control character or half of a surrogate pair"
            fix = "remove it; the text ends in logs and in workflow files"
            line = document.line(pointer, lines)
            found.append(_error("MG005", document.name, line, what, fix, ascii(pointer)[1:-1]))
        if isinstance(value, dict):
            stack.extend((f"{pointer}/{escape(key)}", item) for key, item in value.items())
        elif isinstance(value, list):
            stack.extend((f"{pointer}/{index}", item) for index, item in enumerate(value))
    return sorted(found, key=lambda f: (f.line, f.pointer))


def _walk(text: str) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """(pointer -> line, duplicates as (pointer, line)) of a text that is known to be JSON."""
    lines: dict[str, int] = {}
    duplicates: list[tuple[str, int]] = []
    stack: list[tuple[str, int | None, set[str]]] = []  # (pointer, next index or None for objects, keys seen)
    key: str | None = None
    line, last = 1, 0
    for match in re.finditer(_WORD, text, re.DOTALL):
        line += text.count("\n", last, match.start())
        last = match.start()
        word = match[0]
        if word in ",:":
            continue
        if word in "]}":
            stack.pop()
            continue
        if stack and stack[-1][1] is None and key is None:  # inside an object, at a key
            key = json.loads(word)
            parent = stack[-1]
            if key in parent[2]:
                duplicates.append((f"{parent[0]}/{escape(str(key))}", line))
            parent[2].add(str(key))
            continue
        pointer = ""
        if stack:
            parent_pointer, index, seen = stack[-1]
            if index is None:
                pointer = f"{parent_pointer}/{escape(str(key))}"
            else:
                pointer = f"{parent_pointer}/{index}"
                stack[-1] = (parent_pointer, index + 1, seen)
        key = None
        lines.setdefault(pointer, line)
        if word in "{[":
            stack.append((pointer, None if word == "{" else 0, set()))
    return lines, duplicates
