"""The tensor table of a GGUF, and whether the data it describes can be in the file."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from agent.header.ggml_types import BLOCK
from agent.header.limits import MAX_DIMS, MAX_NAME_BYTES
from agent.header.metadata import checked_name
from agent.header.model import TensorInfo
from agent.header.verdicts import Verdict

if TYPE_CHECKING:
    from agent.header.cursor import Cursor

SMALLEST_TENSOR = 8 + 1 + 4 + 4 + 8
"""Bytes of the shortest entry."""

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_TYPE_AND_OFFSET = struct.Struct("<IQ")


def read_tensors(cursor: Cursor, n_tensors: int) -> tuple[TensorInfo, ...]:
    """Return the table's entries in file order.

    Raises:
        HeaderInvalid: at the first thing that is wrong.
    """
    tensors: dict[str, TensorInfo] = {}
    for index in range(n_tensors):
        name = _read_name(cursor, index)
        shape = _read_shape(cursor, name)
        kind, offset = cursor.read(_TYPE_AND_OFFSET, "a tensor's type and offset")
        if name in tensors:
            first = tensors[name].offset
            cursor.fail(Verdict.DUPLICATE_TENSOR, f"tensor {name} is there twice, with data at {first} and {offset}")
        tensors[name] = TensorInfo(name, shape, kind, offset, _n_bytes(cursor, name, shape, kind))
    return tuple(tensors.values())


def check_data(cursor: Cursor, tensors: tuple[TensorInfo, ...], data_offset: int, alignment: int) -> int | None:
    """Check that all data is aligned, inside of the file, and apart from each other.

    Of a type that is not known only the first byte is certain.

    Returns:
        Where the last tensor ends in the file; None where its size is unknown.

    Raises:
        HeaderInvalid: `bad_offset`, `overlap` or `truncated`.
    """
    size = cursor.size - data_offset
    end, before, certain = 0, "", True
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        name, offset = tensor.name, tensor.offset
        if offset % alignment:
            cursor.fail(Verdict.BAD_OFFSET, f"tensor {name} lies at {offset}, not a multiple of {alignment}")
        if offset < end:
            cursor.fail(Verdict.OVERLAP, f"tensor {name} at {offset} overlaps {before}, which ends at {end}")
        end, before, certain = offset + (tensor.n_bytes or 1), name, tensor.n_bytes is not None
        if end > size:
            cursor.fail(
                Verdict.TRUNCATED,
                f"tensor {name} ends at byte {data_offset + end}, but the file has {cursor.size}:"
                f" {end - size} bytes are missing",
            )
    return data_offset + end if certain else None


def _read_name(cursor: Cursor, index: int) -> str:
    start = cursor.offset
    (length,) = cursor.read(_U64, "the length of a tensor name")
    what = f"the name of tensor {index} at byte {start}"
    if not 0 < length <= MAX_NAME_BYTES:
        cursor.fail(Verdict.BAD_NAME, f"{what} has {length} bytes; 1 to {MAX_NAME_BYTES} are allowed")
    return checked_name(cursor, cursor.take(length, "a tensor name"), what)


def _read_shape(cursor: Cursor, name: str) -> tuple[int, ...]:
    (n_dims,) = cursor.read(_U32, "the number of dimensions")
    if n_dims > MAX_DIMS:
        cursor.fail(Verdict.BAD_SHAPE, f"tensor {name} has {n_dims} dimensions; the limit is {MAX_DIMS}")
    shape: tuple[int, ...] = struct.unpack(f"<{n_dims}Q", cursor.take(8 * n_dims, "a shape"))
    if 0 in shape:
        cursor.fail(Verdict.BAD_SHAPE, f"tensor {name} has a dimension of size 0: {shape}")
    if math.prod(shape) >= 1 << 63:
        cursor.fail(Verdict.BAD_SHAPE, f"tensor {name} has 2^63 elements or more: {shape}")
    return shape


def _n_bytes(cursor: Cursor, name: str, shape: tuple[int, ...], kind: int) -> int | None:
    if kind not in BLOCK:
        return None
    elements, size = BLOCK[kind]
    row = shape[0] if shape else 1
    if row % elements:
        cursor.fail(Verdict.BAD_SHAPE, f"tensor {name} of type {kind} has rows of {row}, not a multiple of {elements}")
    return math.prod(shape) // elements * size
