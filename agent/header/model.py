"""What a header says, as plain values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from agent.errors import HeaderInvalid
from agent.header.limits import MAX_LAYERS
from agent.header.text import printable, shown
from agent.header.verdicts import NEXT_STEP, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LAYER = re.compile(r"blk\.(0|[1-9][0-9]*)\.")


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """An array that was jumped over: its elements' type (`uint32`, `string`, ...) and its length."""

    type: str
    length: int


@dataclass(frozen=True, slots=True)
class SkippedString:
    """A string too long to keep; its length in bytes."""

    length: int


Value = bool | int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[bool, ...] | SkippedArray | SkippedString


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the model.

    Attributes:
        name: escaped, so that it can be shown; ordinary names are unchanged.
        shape: elements, in ggml order (ne[0] first); () for a scalar.
        type: ggml type number.
        offset: bytes from the start of its shard's tensor data.
        n_bytes: size of its data; None where the type is unknown.
        shard: index into `Header.shards`.
    """

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    n_bytes: int | None
    shard: int = 0

    @property
    def layer(self) -> int | None:
        """N of `blk.N.`, None for a tensor that belongs to no layer."""
        match = _LAYER.match(self.name)
        return int(match[1]) if match else None

    @property
    def part(self) -> str:
        """The name without `blk.N.`: `attn_q.weight`."""
        return _LAYER.sub("", self.name, count=1)


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of the model; its tensor data begins at `data_offset`."""

    path: Path
    data_offset: int
    file_size: int
    n_tensors: int


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of a model, of one file or merged over its shards.

    Attributes:
        path: the (first) file.
        version: GGUF version, 2 or 3.
        architecture: `general.architecture`, escaped; "" only for a shard that is read on its own.
        metadata: by escaped key; strings are exact (see `agent.header.text`), big arrays are `SkippedArray`.
        tensors: in file order.
        alignment: of the tensor data, in bytes.
        data_offset: where the tensor data of the first file begins.
        file_size: bytes of all files.
        shards: the files in their order; one for a model that is not split.
    """

    path: Path
    version: int
    architecture: str
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_offset: int
    file_size: int
    shards: tuple[Shard, ...]

    def key(self, suffix: str) -> str:
        """Return the architecture's own key: `key("block_count")` is `qwen3.block_count`."""
        return f"{self.architecture}.{suffix}"

    def fail(self, verdict: Verdict, detail: str) -> NoReturn:
        """Raise `HeaderInvalid` about this model."""
        raise HeaderInvalid(printable(str(self.path)), verdict, detail, NEXT_STEP[verdict])

    def get_uint(self, key: str, default: int | None = None) -> int:
        """Return a whole number >= 0, of any integer type.

        Raises:
            HeaderInvalid: `missing_key` where it is absent and has no default, `bad_value` where it is something else.
        """
        value = self.metadata.get(key, default)
        if value is None:
            self.fail(Verdict.MISSING_KEY, f"{shown(key)} is missing")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.fail(Verdict.BAD_VALUE, f"{shown(key)} is {describe(value)}, but must be a whole number >= 0")
        return value

    def get_per_layer(self, key: str, n_layer: int, default: int | None = None) -> tuple[int, ...]:
        """Return one whole number >= 0 a layer, from a scalar or from an array of exactly `n_layer` integers or bools.

        The rule for the length is llama.cpp's (`get_key_or_arr`).

        Raises:
            HeaderInvalid: `missing_key`, or `bad_value` for another type or length.
        """
        value = self.metadata.get(key)
        if not isinstance(value, tuple | SkippedArray):
            return (self.get_uint(key, default),) * n_layer
        if isinstance(value, SkippedArray) or not all(isinstance(item, int) and item >= 0 for item in value):
            self.fail(Verdict.BAD_VALUE, f"{shown(key)} is {describe(value)}, but must hold whole numbers >= 0")
        if len(value) != n_layer:
            self.fail(Verdict.BAD_VALUE, f"{shown(key)} holds {len(value)} values for {n_layer} layers")
        return tuple(int(item) for item in value)

    @property
    def block_count(self) -> int:
        """All layers, those of next-token prediction heads included; 1 to 512.

        Raises:
            HeaderInvalid: `missing_key` or `bad_block_count`.
        """
        key = self.key("block_count")
        value = self.metadata.get(key)
        if value is None:
            self.fail(Verdict.MISSING_KEY, f"{shown(key)} is missing")
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_LAYERS:
            self.fail(Verdict.BAD_BLOCK_COUNT, f"{shown(key)} is {describe(value)}, but must be 1 to {MAX_LAYERS}")
        return value

    @property
    def trunk_layers(self) -> int:
        """Layers of the model itself: `block_count` less the appended next-token prediction layers.

        Raises:
            HeaderInvalid: as `block_count`; `bad_block_count` where nothing remains.
        """
        total = self.block_count
        extra = self.get_uint(self.key("nextn_predict_layers"), 0)
        if extra >= total:
            self.fail(Verdict.BAD_BLOCK_COUNT, f"{extra} of {total} layers are next-token prediction layers")
        return total - extra


def describe(value: Value) -> str:
    """Say what a value is, shortly and safely."""
    if isinstance(value, str):
        return f'the string "{shown(value)}"'
    if isinstance(value, SkippedString):
        return f"a string of {value.length} bytes"
    if isinstance(value, SkippedArray):
        return f"an array of {value.length} x {value.type}"
    if isinstance(value, tuple):
        head = ", ".join(str(item) for item in value[:8])
        return f"an array of {len(value)} ({head}{', ...' if len(value) > 8 else ''})"
    return f"the {type(value).__name__} {value}"
