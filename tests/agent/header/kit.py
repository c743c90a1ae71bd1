"""Writes GGUF bytes by hand, wrong ones as well, and mutates them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from agent.header.model import Header
from agent.header.parse import parse
from agent.header.source import BytesSource

NUMBERS = {
    "u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"),
    "bool": (7, "?"), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d"),
}  # fmt: skip
F32, F16, Q4_0, Q8_0, UNKNOWN_TYPE = 0, 1, 2, 8, 156


def text(raw: str | bytes, length: int | None = None) -> bytes:
    """Return a GGUF string; `length` overrides the true one."""
    data = raw.encode() if isinstance(raw, str) else raw
    return struct.pack("<Q", len(data) if length is None else length) + data


def key(name: str | bytes, encoded: bytes) -> bytes:
    """Return one entry of the key table."""
    return text(name) + encoded


def number(kind: str, value: float) -> bytes:
    """Return a value of a fixed size with its type."""
    code, letter = NUMBERS[kind]
    return struct.pack("<I" + letter, code, value)


def string(raw: str | bytes, length: int | None = None) -> bytes:
    """Return a string value with its type."""
    return struct.pack("<I", 8) + text(raw, length)


def array(kind: str, values: Sequence[float], length: int | None = None) -> bytes:
    """Return an array of numbers with its type; `length` overrides the true one."""
    code, letter = NUMBERS[kind]
    n = len(values) if length is None else length
    return struct.pack("<IIQ", 9, code, n) + struct.pack(f"<{len(values)}{letter}", *values)


def strings(values: Sequence[str | bytes], length: int | None = None) -> bytes:
    """Return an array of strings with its type; `length` overrides the true one."""
    n = len(values) if length is None else length
    return struct.pack("<IIQ", 9, 8, n) + b"".join(text(value) for value in values)


def tensor(name: str | bytes, shape: Sequence[int] = (32,), kind: int = F32, offset: int = 0) -> bytes:
    """Return one entry of the tensor table."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def architecture(name: str | bytes = "llama") -> bytes:
    """Return the entry that every model must have."""
    return key("general.architecture", string(name))


def gguf(
    keys: Iterable[bytes] = (),
    tensors: Iterable[bytes] = (),
    *,
    data: int | bytes = b"",
    alignment: int = 32,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    version: int = 3,
) -> bytes:
    """Return a file: its tables, padding, and `data` (bytes, or so many zero bytes)."""
    entries, table = list(keys), list(tensors)
    head = struct.pack(
        "<4sIQQ",
        b"GGUF",
        version,
        len(table) if n_tensors is None else n_tensors,
        len(entries) if n_keys is None else n_keys,
    )
    body = head + b"".join(entries) + b"".join(table)
    payload = bytes(data) if isinstance(data, int) else data
    return body + (b"\0" * (-len(body) % alignment) + payload if table else payload)


def model(name: str, values: dict[str, bytes], parts: Iterable[str] = ()) -> bytes:
    """Return a model of architecture `name`: its own keys without the prefix, and one small tensor for each of `parts`."""
    keys = [architecture(name), *(key(f"{name}.{suffix}", value) for suffix, value in values.items())]
    table = [tensor(part, offset=128 * index) for index, part in enumerate(parts)]
    return gguf(keys, table, data=128 * len(table))


def u32(value: int) -> bytes:
    """Return the commonest value."""
    return number("u32", value)


def read(data: bytes) -> Header:
    """Parse bytes."""
    return parse(BytesSource(data, "fuzz.gguf"), Path("fuzz.gguf"))


def samples() -> list[bytes]:
    """Return small sound files that together use every part of the format: the seeds of the fuzzers."""
    every = [key(f"llama.{kind}", number(kind, 1)) for kind in NUMBERS]
    lists = [key(f"llama.list.{kind}", array(kind, [0, 1, 1])) for kind in NUMBERS]
    vocabulary = [
        key("tokenizer.ggml.model", string("gpt2")),
        key("tokenizer.ggml.tokens", strings([f"token {index}" for index in range(40)])),
        key("tokenizer.ggml.scores", array("f32", [0.0] * 40)),
    ]
    hybrid = {
        "block_count": u32(4), "embedding_length": u32(64), "attention.head_count": u32(4),
        "attention.head_count_kv": array("i32", [0, 0, 2, 0]), "ssm.conv_kernel": u32(4), "ssm.inner_size": u32(128),
        "ssm.state_size": u32(16), "ssm.time_step_rank": u32(4),
    }  # fmt: skip
    parts = [f"blk.{layer}.{part}.weight" for layer in range(4) for part in (["attn_q"] if layer == 2 else ["ssm_in"])]
    return [
        gguf([architecture(), *every, *lists]),
        gguf([architecture(), *vocabulary]),
        model("jamba", hybrid, parts),
        model("qwen3next", {"block_count": u32(8), "full_attention_interval": u32(4)}, ["output.weight"]),
        gguf(
            [architecture("llama"), key("general.alignment", u32(64)), key("llama.block_count", u32(1))],
            [
                tensor("token_embd.weight", (32, 4), Q8_0, 0),
                tensor("blk.0.attn_q.weight", (64, 2), F16, 192),
                tensor("blk.0.attn_norm.weight", (32,), F32, 448),
            ],
            data=576,
            alignment=64,
        ),
        gguf(
            [
                architecture("llama"),
                key("split.count", number("u16", 2)),
                key("split.no", number("u16", 0)),
                key("split.tensors.count", number("i32", 1)),
            ],
            [tensor("output.weight")],
            data=128,
        ),
    ]


_EDGES = (0, 1, 2, 5, 31, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62, 1 << 63, (1 << 64) - 1)  # fmt: skip  # noqa: E501


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return `data` with one to four faults: bits, bytes, counts, cuts, repeats, insertions."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_MUTATORS)(changed, rng)
    return bytes(changed)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _edge(data: bytearray, rng: random.Random) -> None:
    width, letter = rng.choice(((4, "I"), (8, "Q")))
    if len(data) >= width:
        start = rng.randrange(len(data) - width + 1)
        struct.pack_into("<" + letter, data, start, rng.choice(_EDGES) % (1 << 8 * width))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _drop(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.randint(1, 16)]


def _repeat(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = data[start : start + rng.randint(1, 64)]


def _insert(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.randbytes(rng.randint(1, 16))


_MUTATORS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip, _byte, _byte, _edge, _edge, _edge, _cut, _drop, _repeat, _insert,
)  # fmt: skip
