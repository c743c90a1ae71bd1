"""GGUF 2 and 3, little-endian: from a source to a `Header`. Every count, length and offset is checked before use.

The layout is that of ggml's `gguf.cpp`; the tests compare both readers on the same bytes. Time is linear in the header.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from agent.header.cursor import Cursor
from agent.header.formats import MAGIC, check_format
from agent.header.limits import MAX_KEYS, MAX_TENSORS
from agent.header.metadata import SMALLEST_KEY, MetadataReader
from agent.header.model import Header, Shard, Value
from agent.header.tensors import SMALLEST_TENSOR, check_data, read_tensors
from agent.header.text import printable
from agent.header.verdicts import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from agent.header.source import Source

_ARCHITECTURE = "general.architecture"
_COUNTS = struct.Struct("<QQ")


def parse(source: Source, path: Path, *, whole_model: bool = True) -> Header:
    """Read one file's header.

    Args:
        source: the bytes.
        path: what the header calls its file.
        whole_model: False for a shard, which may lack the architecture.

    Raises:
        NotAGguf: the file is of another format.
        HeaderInvalid: it is a GGUF that contradicts itself or a limit.
    """
    version = check_format(source)
    cursor = Cursor(source)
    cursor.skip(8, "the magic and version")
    n_tensors, n_keys = cursor.read(_COUNTS, "the number of tensors and keys")
    _check_count(cursor, n_keys, MAX_KEYS, SMALLEST_KEY, "keys")
    _check_count(cursor, n_tensors, MAX_TENSORS, SMALLEST_TENSOR, "tensors")
    reader = MetadataReader(cursor)
    metadata = reader.read(n_keys)
    architecture = _architecture(cursor, metadata, whole_model=whole_model)
    tensors = read_tensors(cursor, n_tensors)
    # without tensors there is no data section, and llama.cpp does not look for one
    data_offset = _pad(cursor.offset, reader.alignment) if tensors else cursor.offset
    end = check_data(cursor, tensors, data_offset, reader.alignment)
    header = Header(
        path=path,
        version=version,
        architecture=architecture,
        metadata=metadata,
        tensors=tensors,
        alignment=reader.alignment,
        data_offset=data_offset,
        file_size=source.size,
        shards=(Shard(path, data_offset, source.size, len(tensors)),),
    )
    if header.key("block_count") in metadata:
        _ = header.block_count  # raises where it is out of range
    if end is not None:
        _check_end(source, cursor, header, end)
    return header


def _check_count(cursor: Cursor, n: int, limit: int, smallest: int, what: str) -> None:
    if n > limit:
        cursor.fail(Verdict.LIMIT_EXCEEDED, f"it says that it has {n} {what}; the limit is {limit}")
    cursor.require(n * smallest, f"a table of {n} {what}")


def _architecture(cursor: Cursor, metadata: dict[str, Value], *, whole_model: bool) -> str:
    value = metadata.get(_ARCHITECTURE)
    if value is None and not whole_model:
        return ""
    if not isinstance(value, str) or not value:
        number = metadata.get("split.no")
        what = "is missing" if value is None else "is not a string, or empty"
        hint = f" (this is shard {number + 1}: open the first one)" if isinstance(number, int) and number > 0 else ""
        cursor.fail(Verdict.MISSING_ARCHITECTURE, f"{_ARCHITECTURE} {what}{hint}")
    return printable(value)


def _check_end(source: Source, cursor: Cursor, header: Header, end: int) -> None:
    """A file joined with `cat` begins anew where the first one ends; a shard ends with its own data."""
    padded = _pad(end, header.alignment)
    for start in sorted({end, padded}):
        if start + len(MAGIC) <= source.size and source.read_at(start, len(MAGIC)) == MAGIC:
            cursor.fail(Verdict.CONCATENATED, f"another GGUF begins behind its last tensor, at byte {start}")
    count = header.metadata.get("split.count", 0)
    if isinstance(count, int) and count > 1 and source.size > padded:
        extra = source.size - padded
        cursor.fail(Verdict.CONCATENATED, f"it is one of {count} shards, but goes on for {extra} bytes behind its data")


def _pad(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
