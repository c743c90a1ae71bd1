"""Names what a file really is, from its first bytes, before anything is parsed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from agent.errors import NotAGguf
from agent.header.text import decode, shown
from agent.header.verdicts import NEXT_STEP, Verdict

if TYPE_CHECKING:
    from agent.header.source import Source

MAGIC = b"GGUF"
HEAD = 256
FIXED = 24
"""Bytes of the fixed part: magic, version, number of tensors, number of keys."""

_LEGACY = {b"lmgg": "GGML", b"fmgg": "GGMF", b"tjgg": "GGJT", b"algg": "GGLA (a LoRA adapter)"}
_LEGACY |= {magic[::-1]: name for magic, name in _LEGACY.items()}
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_VERSIONS = (2, 3)


def check_format(source: Source) -> int:
    """Return the GGUF version of `source`.

    Raises:
        NotAGguf: it is something else; the verdict names what.
    """
    if source.size == 0:
        raise _not(source, Verdict.EMPTY, "the file has no bytes")
    head = source.read_at(0, min(HEAD, source.size))
    if head[:4] != MAGIC:
        verdict, detail = _name(head, source.size)
        raise _not(source, verdict, detail)
    if source.size < FIXED or len(head) < FIXED:
        raise _not(source, Verdict.TRUNCATED, f"it ends after {source.size} bytes, inside of the first {FIXED}")
    (version,) = struct.unpack_from("<I", head, 4)
    if version in _VERSIONS:
        return int(version)
    if version == 1:
        raise _not(source, Verdict.GGUF_V1, "it is a GGUF of version 1")
    if version and version & 0xFFFF == 0:
        (swapped,) = struct.unpack_from(">I", head, 4)
        raise _not(source, Verdict.BIG_ENDIAN, f"it is a big-endian GGUF (version {swapped})")
    raise _not(source, Verdict.GGUF_VERSION, f"it says GGUF version {version}; this reader knows {_VERSIONS}")


def _name(head: bytes, size: int) -> tuple[Verdict, str]:
    magic = head[:4]
    if MAGIC.startswith(head):
        return Verdict.TRUNCATED, f"it ends after {size} bytes, inside of the magic"
    if magic == MAGIC[::-1]:
        return Verdict.BIG_ENDIAN, 'its magic is "FUGG": GGUF in the other byte order'
    if magic in _LEGACY:
        return Verdict.LEGACY_GGML, f"it is a file of the old {_LEGACY[magic]} format"
    if head.startswith(b"version https://git-lfs") or (magic == b"vers" and size < 1024):
        return Verdict.LFS_POINTER, f"it is a Git LFS pointer of {size} bytes"
    if magic in _ZIP:
        return Verdict.ZIP, "it is a ZIP archive"
    if magic[:2] == b"\x1f\x8b":
        return Verdict.GZIP, "it is compressed with gzip"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < size:
        return Verdict.SAFETENSORS, "it is a safetensors file"
    return _name_text(head) or (Verdict.UNKNOWN_MAGIC, f'it begins with "{shown(decode(head[:16]))}"')


def _name_text(head: bytes) -> tuple[Verdict, str] | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    html = (b"<!do", b"<html", b"<head", b"<body", b"<title")
    if text.startswith(html) or (text.startswith((b"<?xml", b"<!--")) and b"<html" in text):
        return Verdict.HTML_PAGE, "it is an HTML page"
    if text.startswith((b"<?xml", b"<error")):
        return Verdict.XML_ERROR, f'it is an XML document: "{shown(decode(head))}"'
    if text.startswith((b'{"', b"{\n", b"{\r", b"{ ", b'["', b"[{")):
        return Verdict.JSON_DOCUMENT, f'it is a JSON document: "{shown(decode(head))}"'
    return None


def _not(source: Source, verdict: Verdict, detail: str) -> NotAGguf:
    return NotAGguf(source.name, verdict, detail, NEXT_STEP[verdict])
