"""Strings of untrusted files: kept byte for byte, shown escaped."""

from __future__ import annotations

_SHOWN = 120
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def decode(raw: bytes) -> str:
    """Decode a GGUF string without loss: bytes that are not UTF-8 become lone surrogates, `encode` gives them back."""
    return raw.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Return the bytes that `decode` was given."""
    return text.encode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    r"""Escape what could disturb a terminal or a log: controls, ``\``, invisible marks, invalid bytes.

    Two different texts never look the same. Ordinary names come back unchanged.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(char if char.isprintable() and char != "\\" else _escape(char) for char in text)


def shown(text: str, limit: int = _SHOWN) -> str:
    """Return `printable(text)`, cut to `limit` characters; for messages."""
    safe = printable(text[: limit + 1])
    return safe if len(safe) <= limit else safe[:limit] + "..."


def _escape(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
