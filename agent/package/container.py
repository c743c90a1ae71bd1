"""GGUF files made of pieces of others: keys and tensor data are copied byte for byte, nothing is decoded and encoded again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from agent.errors import PackageInvalid, PackageNotWritten
from agent.header.cursor import Cursor
from agent.header.source import FileSource
from agent.header.text import decode, encode, shown

if TYPE_CHECKING:
    from agent.header.reader import Header, TensorInfo

Advance = Callable[[int], None]
"""Told of every further byte that was read or written."""

ALIGNMENT_KEY = "general.alignment"
ARCHITECTURE_KEY = "general.architecture"

_MAGIC, _VERSION = b"GGUF", 3
_BLOCK = 4 * 2**20
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9
# bytes of a value of a fixed size, by its type number
_FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def ignore(_count: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The data of one tensor: `tensor.n_bytes` bytes at `start` of `file`; without a file, as many zeros."""

    tensor: TensorInfo
    file: Path | None = None
    start: int = 0

    @property
    def size(self) -> int:
        """Bytes of its data."""
        return self.tensor.n_bytes or 0


class Written(NamedTuple):
    """A file as it was written; the sha256 is None where it has holes, which are never read back."""

    size: int
    sha256: str | None


def pieces_of(header: Header) -> dict[str, Piece]:
    """The data of all tensors of a model, by name, in the order of the file or of its shards.

    Raises:
        PackageInvalid: a type is not known, so that nobody could say where its data ends; or a name is not plain text.
    """
    pieces: dict[str, Piece] = {}
    for tensor in header.tensors:
        if tensor.n_bytes is None:
            raise PackageInvalid(
                f"{shown(str(header.path))}: tensor {shown(tensor.name)} is of type {tensor.type}, whose size this "
                "skippy-agent does not know: update it, or package a file of known types"
            )
        if "\\" in tensor.name:
            raise PackageInvalid(
                f"{shown(str(header.path))}: the name of tensor {shown(tensor.name)} is not plain text: convert the model again"
            )
        shard = header.shards[tensor.shard]
        pieces[tensor.name] = Piece(tensor=tensor, file=shard.path, start=shard.data_offset + tensor.offset)
    return pieces


def read_pairs(path: Path) -> dict[str, bytes]:
    """The metadata of a file whose header was read before: each key with all its bytes, name, type and value.

    Raises:
        HeaderUnreadable, HeaderInvalid: the file changed since.
    """
    with FileSource(path) as source:
        cursor = Cursor(source)
        cursor.skip(16, "the magic, version and number of tensors")
        (count,) = cursor.read(_U64, "the number of keys")
        spans = []
        for _ in range(count):
            start = cursor.offset
            (length,) = cursor.read(_U64, "the length of a key")
            key = decode(cursor.take(length, "a key"))
            (kind,) = cursor.read(_U32, "a value type")
            _skip_value(cursor, kind)
            spans.append((key, start, cursor.offset))
        return {key: source.read_at(start, end - start) for key, start, end in spans}


def mark(key: str, value: bool | int | str) -> bytes:
    """A key of our own: a bool, a uint32 or a string."""
    head = _U64.pack(len(key)) + key.encode()
    if isinstance(value, str):
        return head + _U32.pack(_STRING) + _U64.pack(len(value.encode())) + value.encode()
    if isinstance(value, bool):
        return head + _U32.pack(_BOOL) + bytes([value])
    return head + _U32.pack(_UINT32) + _U32.pack(value)


def write_gguf(
    path: Path, pairs: Mapping[str, bytes], pieces: Sequence[Piece], alignment: int, advance: Advance = ignore
) -> Written:
    """Write one file. Zeros become a hole, which takes no room on most disks.

    Args:
        path: overwritten.
        pairs: metadata, as `read_pairs` gives it.
        pieces: tensors in the order in which they are to stand.
        alignment: of the data, in bytes; what `general.alignment` says.
        advance: told of the bytes of tensor data.

    Raises:
        PackageNotWritten: the system refuses; what was written is removed.
        PackageInvalid: a file that a piece comes from is shorter than its header says.
    """
    with writing(path), path.open("wb") as file:
        out = _Out(file)
        out.write(_MAGIC + _U32.pack(_VERSION) + _U64.pack(len(pieces)) + _U64.pack(len(pairs)))
        for pair in pairs.values():
            out.write(pair)
        offset = 0
        for piece in pieces:
            out.write(_table_row(piece.tensor, offset))
            offset += -(-piece.size // alignment) * alignment
        if pieces:
            out.pad(alignment)
        for piece in pieces:
            if piece.file is None:
                out.leave_out(piece.size)
            else:
                for block in read_piece(piece):
                    out.write(block)
                    advance(len(block))
            out.pad(alignment)
        file.truncate(out.size)
        return Written(out.size, out.digest())


def read_piece(piece: Piece) -> Iterator[bytes]:
    """The data of a tensor, block by block.

    Raises:
        PackageInvalid: the file is shorter than its header says.
    """
    left = piece.size
    if piece.file is None:
        while left:
            block = bytes(min(left, _BLOCK))
            left -= len(block)
            yield block
        return
    with piece.file.open("rb") as file:
        file.seek(piece.start)
        while left:
            block = file.read(min(left, _BLOCK))
            if not block:
                raise PackageInvalid(
                    f"{piece.file}: {left} bytes of tensor {piece.tensor.name} are missing: fetch it again"
                )
            left -= len(block)
            yield block


def same_data(one: Piece, other: Piece) -> bool:
    """True if two tensors hold the same bytes."""
    return one.size == other.size and all(a == b for a, b in zip(read_piece(one), read_piece(other), strict=True))


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Name what the system refuses while `path` is made.

    Raises:
        PackageNotWritten: no room, no permission, no such folder.
    """
    try:
        yield
    except OSError as error:
        raise PackageNotWritten(
            f"{path} could not be written ({error.strerror or error}): make room, or name another folder"
        ) from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Write `path`, or leave nothing of it.

    Raises:
        PackageNotWritten: as `named_errors`.
    """
    with named_errors(path):
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise


class _Out:
    """A file that is written from its beginning to its end, with its digest as long as nothing is left out."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._whole = True
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append."""
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)

    def pad(self, alignment: int) -> None:
        """Zeros up to the next multiple."""
        self.write(bytes(-self.size % alignment))

    def leave_out(self, count: int) -> None:
        """A hole."""
        self._file.seek(count, os.SEEK_CUR)
        self.size += count
        self._whole = False

    def digest(self) -> str | None:
        """sha256 in hex; None where there is a hole."""
        return self._hash.hexdigest() if self._whole else None


def _table_row(tensor: TensorInfo, offset: int) -> bytes:
    name = encode(tensor.name)
    return (
        _U64.pack(len(name))
        + name
        + _U32.pack(len(tensor.shape))
        + b"".join(map(_U64.pack, tensor.shape))
        + _U32.pack(tensor.type)
        + _U64.pack(offset)
    )


def _skip_value(cursor: Cursor, kind: int) -> None:
    if kind == _STRING:
        (length,) = cursor.read(_U64, "the length of a string")
        cursor.skip(length, "a string")
    elif kind == _ARRAY:
        (items,) = cursor.read(_U32, "the type of an array")
        (length,) = cursor.read(_U64, "the length of an array")
        if items == _STRING:
            cursor.skip_strings(length, "a string of an array")
        else:
            cursor.skip(length * _FIXED[items], "an array")
    else:
        cursor.skip(_FIXED[kind], "a value")
