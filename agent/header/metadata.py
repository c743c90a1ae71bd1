"""The key-value table of a GGUF."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from agent.header.limits import (
    MAX_ALIGNMENT,
    MAX_ARRAY,
    MAX_BUILT,
    MAX_BUILT_ARRAY,
    MAX_BUILT_STRING,
    MAX_KEY_BYTES,
    MAX_STRING_BYTES,
    MAX_STRINGS,
)
from agent.header.model import SkippedArray, SkippedString, Value
from agent.header.text import decode, printable, shown
from agent.header.verdicts import Verdict

if TYPE_CHECKING:
    from agent.header.cursor import Cursor

SMALLEST_KEY = 8 + 1 + 4 + 1
"""Bytes of the shortest key with its value."""

_ALIGNMENT = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9
# value types of a fixed size: number -> (name, struct code)
_SCALARS = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    7: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
_LAYOUT = {number: struct.Struct("<" + code) for number, (_, code) in _SCALARS.items()}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ARRAY_HEAD = struct.Struct("<IQ")
_NUMBER_BYTES = 40  # memory of a number in a tuple


class MetadataReader:
    """Reads the table once and keeps the budgets of memory and work.

    Attributes:
        alignment: of the tensor data, in bytes; known after `read`.
    """

    def __init__(self, cursor: Cursor) -> None:
        self.alignment = _DEFAULT_ALIGNMENT
        self._cursor = cursor
        self._built = 0
        self._strings = 0

    def read(self, n_keys: int) -> dict[str, Value]:
        """Return the values by escaped key.

        Raises:
            HeaderInvalid: at the first thing that is wrong.
        """
        cursor = self._cursor
        metadata: dict[str, Value] = {}
        for _ in range(n_keys):
            start = cursor.offset
            key = self._key(start)
            if key in metadata:
                cursor.fail(Verdict.DUPLICATE_KEY, f"the key {shown(key)} is there twice, again at byte {start}")
            (kind,) = cursor.read(_U32, "a value type")
            value = self._value(key, kind)
            if key == _ALIGNMENT:
                self.alignment = _checked_alignment(cursor, kind, value)
            metadata[key] = value
        return metadata

    def _key(self, start: int) -> str:
        cursor = self._cursor
        (length,) = cursor.read(_U64, "the length of a key")
        if length == 0:
            cursor.fail(Verdict.BAD_NAME, f"the key at byte {start} is empty")
        if length > MAX_KEY_BYTES:
            cursor.fail(Verdict.LIMIT_EXCEEDED, f"the key at byte {start} has {length} bytes")
        raw = cursor.take(length, "a key")
        self._spend_text(raw)
        return checked_name(cursor, raw, f"the key at byte {start}")

    def _value(self, key: str, kind: int) -> Value:
        cursor = self._cursor
        if kind == _STRING:
            return self._string(key)
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _LAYOUT:
            cursor.fail(Verdict.BAD_VALUE_TYPE, f"the key {shown(key)} has a value of unknown type {kind}")
        (value,) = cursor.read(_LAYOUT[kind], "a value")
        number: int | float = value
        return bool(number) if kind == _BOOL else number

    def _string(self, key: str) -> str | SkippedString:
        cursor = self._cursor
        (length,) = cursor.read(_U64, "the length of a string")
        if length > MAX_STRING_BYTES:
            cursor.fail(Verdict.LIMIT_EXCEEDED, f"the string of {shown(key)} has {length} bytes")
        if length > MAX_BUILT_STRING:
            cursor.skip(length, "a string")
            return SkippedString(length)
        raw = cursor.take(length, "a string")
        self._spend_text(raw)
        return decode(raw)

    def _array(self, key: str) -> Value:
        cursor = self._cursor
        kind, length = cursor.read(_ARRAY_HEAD, "the head of an array")
        if kind != _STRING and kind not in _SCALARS:
            what = "an array of arrays" if kind == _ARRAY else f"an array of unknown type {kind}"
            cursor.fail(Verdict.BAD_VALUE_TYPE, f"the key {shown(key)} holds {what}")
        if length > MAX_ARRAY:
            cursor.fail(Verdict.LIMIT_EXCEEDED, f"the array {shown(key)} has {length} elements")
        if kind == _STRING:
            return self._skip_strings(key, length)
        name, code = _SCALARS[kind]
        n_bytes = length * _LAYOUT[kind].size
        if length > MAX_BUILT_ARRAY or key.startswith("tokenizer."):
            cursor.skip(n_bytes, "an array")
            return SkippedArray(name, length)
        self._spend(_NUMBER_BYTES * length)
        items = struct.unpack(f"<{length}{code}", cursor.take(n_bytes, "an array"))
        return tuple(map(bool, items)) if kind == _BOOL else items

    def _skip_strings(self, key: str, length: int) -> SkippedArray:
        cursor = self._cursor
        cursor.require(8 * length, f"an array of {length} strings")
        self._strings += length
        if self._strings > MAX_STRINGS:
            cursor.fail(Verdict.LIMIT_EXCEEDED, f"with {shown(key)} there are {self._strings} strings in arrays")
        cursor.skip_strings(length, "a string of an array")
        return SkippedArray("string", length)

    def _spend_text(self, raw: bytes) -> None:
        self._spend(len(raw) if raw.isascii() else 4 * len(raw))

    def _spend(self, n: int) -> None:
        self._built += n
        if self._built > MAX_BUILT:
            what = f"the keys and values up to byte {self._cursor.offset}"
            self._cursor.fail(Verdict.LIMIT_EXCEEDED, f"{what} need more than {MAX_BUILT} bytes of memory")


def checked_name(cursor: Cursor, raw: bytes, what: str) -> str:
    """Return a key or tensor name, escaped.

    A zero byte is refused: C readers stop there and would see another name, so two parsers would read two models.
    """
    if b"\0" in raw:
        cursor.fail(Verdict.BAD_NAME, f"{what} holds a zero byte: {shown(decode(raw))}")
    return printable(decode(raw))


def _checked_alignment(cursor: Cursor, kind: int, value: Value) -> int:
    if kind != _UINT32 or not isinstance(value, int):
        name = _SCALARS[kind][0] if kind in _SCALARS else "no number"
        cursor.fail(Verdict.BAD_ALIGNMENT, f"{_ALIGNMENT} is {name}, but must be uint32")
    if not 0 < value <= MAX_ALIGNMENT or value & (value - 1):
        cursor.fail(Verdict.BAD_ALIGNMENT, f"{_ALIGNMENT} is {value}, not a power of two up to {MAX_ALIGNMENT}")
    return value
