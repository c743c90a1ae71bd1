"""The container: counts, lengths, shapes, offsets and names, each checked against the bytes that are there."""

from __future__ import annotations

import struct
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from agent.errors import HeaderError, HeaderInvalid
from agent.header.cursor import Cursor
from agent.header.limits import MAX_KEYS, MAX_STRINGS, MAX_TENSORS
from agent.header.model import SkippedArray, SkippedString
from agent.header.parse import parse
from agent.header.source import BytesSource
from agent.header.text import encode
from tests.agent.header.kit import (
    F16,
    NUMBERS,
    Q4_0,
    UNKNOWN_TYPE,
    architecture,
    array,
    gguf,
    key,
    number,
    read,
    samples,
    string,
    strings,
    tensor,
    text,
    u32,
)

_HUGE = (1 << 62, 1 << 63, (1 << 64) - 1)


def _verdict(data: bytes) -> str:
    with pytest.raises(HeaderInvalid) as caught:
        read(data)
    assert str(caught.value).isprintable()
    return caught.value.verdict


@pytest.mark.parametrize("n", _HUGE)
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda n: gguf([architecture()], n_keys=n), id="D2-kv-count"),
        pytest.param(lambda n: gguf([architecture()], n_tensors=n), id="D2-tensor-count"),
        pytest.param(lambda n: gguf([text("k", n)], n_keys=1), id="D2-key-length"),
        pytest.param(lambda n: gguf([key("k", string("v", n))]), id="D2-string-length"),
        pytest.param(lambda n: gguf([key("k", array("u8", [1], n))]), id="D2-array-length"),
        pytest.param(lambda n: gguf([key("k", strings(["v"], n))]), id="D2-string-array-length"),
        pytest.param(lambda n: gguf([key("k", struct.pack("<IIQ", 9, 9, n))]), id="D2-nested-array"),
        pytest.param(lambda n: gguf([key("k", strings(["v"]) [:-9] + text("v", n))]), id="D2-length-in-an-array"),
        pytest.param(lambda n: gguf([architecture()], [text("t", n)], n_tensors=1), id="D2-tensor-name-length"),
    ],
)  # fmt: skip
def test_a_huge_count_costs_nothing(build: object, n: int) -> None:
    """A count that no file can hold is refused from the bytes that are left: no memory, no loop."""
    assert callable(build)
    data = build(n)
    tracemalloc.start()
    verdict = _verdict(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert verdict in ("limit_exceeded", "truncated", "bad_value_type", "bad_name")
    assert peak < 1 << 20


def test_a_count_that_the_file_cannot_hold_is_refused_before_the_first_entry() -> None:
    """D2: counts below the limits are compared with the bytes that are left."""
    assert _verdict(gguf([architecture()], n_keys=MAX_KEYS)) == "truncated"
    assert _verdict(gguf([architecture()], n_tensors=MAX_TENSORS)) == "truncated"
    assert _verdict(gguf([architecture()], n_tensors=MAX_TENSORS + 1)) == "limit_exceeded"


def test_more_strings_than_any_vocabulary_are_refused_unread() -> None:
    """D2: a sparse file full of empty strings cannot keep the reader busy."""

    class Sparse:
        name = "sparse"
        size = 1 << 40
        head = gguf([architecture(), key("k", strings([], MAX_STRINGS + 1))])

        def read_at(self, offset: int, n: int) -> bytes:
            return self.head[offset : offset + n].ljust(n, b"\0")

    with pytest.raises(HeaderInvalid) as caught:
        parse(Sparse(), Path("sparse"))
    assert caught.value.verdict == "limit_exceeded"


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param([1] * 5, id="D4-five-dimensions"),
        pytest.param([1 << 32, 1 << 32], id="D4-product-2^64"),
        pytest.param([1 << 32, 1 << 32, 1, 3], id="D4-product-above-2^64"),
        pytest.param([(1 << 64) - 1], id="D4-negative"),
        pytest.param([1 << 63], id="D4-2^63"),
        pytest.param([3, (1 << 64) // 3 + 1], id="D4-product-wraps-to-a-small-number"),
        pytest.param([32, 0], id="D5-zero-dimension"),
        pytest.param([0], id="D5-zero-only"),
    ],
)
def test_an_impossible_shape_is_refused(shape: list[int]) -> None:
    """Dimensions are multiplied without overflow; none may be zero."""
    assert _verdict(gguf([architecture()], [tensor("t", shape)], data=128)) == "bad_shape"


def test_a_million_dimensions_are_refused() -> None:
    """D4: n_dims is checked before anything is read for it."""
    entry = text("t") + struct.pack("<I", 1_000_000) + b"\0" * 64
    assert _verdict(gguf([architecture()], [entry])) == "bad_shape"


def test_rows_must_hold_whole_blocks() -> None:
    """D4: 33 elements cannot be stored in blocks of 32."""
    assert _verdict(gguf([architecture()], [tensor("t", [33], Q4_0)], data=128)) == "bad_shape"


def test_a_scalar_is_one_element() -> None:
    """Converters write scalars without dimensions, and llama.cpp reads them as one element."""
    header = read(gguf([architecture()], [tensor("t", [])], data=4))
    assert (header.tensors[0].shape, header.tensors[0].n_bytes) == ((), 4)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        pytest.param(gguf([key("", u32(1))]), "bad_name", id="D5-empty-key"),
        pytest.param(gguf([architecture()], [tensor("")], data=128), "bad_name", id="D5-empty-tensor-name"),
        pytest.param(gguf([architecture()], [tensor("t" * 64)], data=128), "bad_name", id="D5-long-tensor-name"),
        pytest.param(
            gguf([architecture()], [tensor("t", offset=(1 << 64) - 32)], data=128), "truncated", id="D5-offset-wraps"
        ),
        pytest.param(gguf([architecture()], [tensor("t", [1 << 61])], data=128), "truncated", id="D5-size-wraps"),
        pytest.param(gguf([architecture()], [tensor("t", offset=8)], data=256), "bad_offset", id="D5-unaligned"),
        pytest.param(
            gguf([architecture()], [tensor("a"), tensor("b", offset=96)], data=256), "overlap", id="D5-overlap"
        ),
        pytest.param(gguf([architecture()], [tensor("a"), tensor("b")], data=256), "overlap", id="D5-same-offset"),
        pytest.param(gguf([architecture()], [tensor("t")], data=127), "truncated", id="D5-data-one-byte-short"),
        pytest.param(gguf([architecture()], [tensor("t")]), "truncated", id="D5-no-data"),
        pytest.param(
            gguf([architecture()], [tensor("t")], n_tensors=(1 << 64) // 368), "limit_exceeded", id="D5-table-wraps"
        ),
        pytest.param(
            gguf([architecture(), key("a", u32(1)), key("a", u32(2))]), "duplicate_key", id="D15-duplicate-key"
        ),
        pytest.param(
            gguf(
                [architecture()], [tensor("blk.0.attn_q.weight"), tensor("blk.0.attn_q.weight", offset=128)], data=256
            ),
            "duplicate_tensor",
            id="D15-duplicate-tensor",
        ),
        pytest.param(gguf([key("k", struct.pack("<I", 13)), architecture()]), "bad_value_type", id="D10-value-type-13"),
        pytest.param(
            gguf([key("k", struct.pack("<IIQ", 9, 13, 0)), architecture()]), "bad_value_type", id="D10-array-type-13"
        ),
    ],
)
def test_a_contradiction_is_named(data: bytes, verdict: str) -> None:
    """Each fault of the container has its verdict, in a message that can be printed anywhere."""
    assert _verdict(data) == verdict


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(number("i32", 32), id="D6-int32"),
        pytest.param(number("u64", 32), id="D6-uint64"),
        pytest.param(string("32"), id="D6-string"),
        pytest.param(array("u32", [32]), id="D6-array"),
        pytest.param(u32(0), id="D6-zero"),
        pytest.param(u32(3), id="D6-three"),
        pytest.param(u32(1 << 30), id="D6-2^30"),
    ],
)
def test_an_absurd_alignment_is_refused(value: bytes) -> None:
    """general.alignment is uint32, a power of two, and bounded."""
    assert _verdict(gguf([architecture(), key("general.alignment", value)])) == "bad_alignment"


def test_the_alignment_moves_the_data() -> None:
    """A larger alignment is followed."""
    keys = [architecture(), key("general.alignment", u32(4096))]
    header = read(gguf(keys, [tensor("t")], data=128, alignment=4096))
    assert (header.alignment, header.data_offset) == (4096, 4096)


@pytest.mark.parametrize("shape", [[32], [33]])
def test_an_unknown_tensor_type_is_opaque(shape: list[int]) -> None:
    """D18: a type that is not in our table keeps its number and has no size; the rest is read."""
    header = read(gguf([architecture()], [tensor("t", shape, UNKNOWN_TYPE)], data=8))
    assert (header.tensors[0].type, header.tensors[0].n_bytes) == (UNKNOWN_TYPE, None)


def test_type_42_is_known() -> None:
    """D18: a type newer than gguf-py's table has its size."""
    header = read(gguf([architecture()], [tensor("t", [64], 42)], data=32))
    assert header.tensors[0].n_bytes == 18


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([], id="D21-absent"),
        pytest.param([key("general.architecture", u32(1))], id="D21-number"),
        pytest.param([architecture("")], id="D21-empty"),
        pytest.param([key("llama.block_count", u32(1))], id="D21-only-its-own-keys"),
    ],
)
def test_a_model_without_an_architecture_is_refused(keys: list[bytes]) -> None:
    """Nothing is guessed from other keys, tensor names or the file's name."""
    assert _verdict(gguf(keys, [tensor("blk.0.attn_q.weight")], data=128)) == "missing_architecture"


@pytest.mark.parametrize("name", ["mistral3", "command-r", "llama4"])
def test_the_architecture_is_what_the_file_says(tmp_path: Path, name: str) -> None:
    """D20: the file name and general.name have no say."""
    data = gguf([architecture("llama"), key("general.name", string(name))])
    assert parse(BytesSource(data), tmp_path / f"{name}.gguf").architecture == "llama"


_ODD = [
    pytest.param(b"line\nbreak", "line\\nbreak", id="D24-newline"),
    pytest.param(b"bad \xff\xfe utf-8", "bad \\xff\\xfe utf-8", id="D24-invalid-utf-8"),
    pytest.param(b"\x1b[31mred", "\\x1b[31mred", id="D24-escape-sequence"),
    pytest.param("right\u202eleft".encode(), "right\\u202eleft", id="D24-bidirectional"),
    pytest.param("gru\u00df".encode(), "gru\u00df", id="D24-letters-stay"),
]


@pytest.mark.parametrize(("raw", "safe"), _ODD)
def test_odd_strings_are_exact_inside_and_escaped_outside(raw: bytes, safe: str) -> None:
    """Names come back printable and distinct; values give back their bytes."""
    header = read(gguf([architecture(raw), key(raw, string(raw))], [tensor(raw)], data=128))
    assert header.architecture == safe
    assert header.tensors[0].name == safe
    value = header.metadata[safe]
    assert isinstance(value, str)
    assert encode(value) == raw


def test_a_zero_byte_in_a_value_is_kept() -> None:
    """D24: a value is not a C string."""
    assert read(gguf([architecture(), key("k", string(b"a\0b"))])).metadata["k"] == "a\0b"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(gguf([architecture(), key(b"a\0b", u32(1))]), id="D24-zero-byte-in-a-key"),
        pytest.param(gguf([architecture()], [tensor(b"a\0b")], data=128), id="D24-zero-byte-in-a-tensor-name"),
    ],
)
def test_a_zero_byte_in_a_name_is_refused(data: bytes) -> None:
    """llama.cpp would stop at it and read another name: two parsers, two models."""
    assert _verdict(data) == "bad_name"


def test_an_escaped_name_is_never_another_one() -> None:
    """D24: a real backslash and an escaped byte do not collide, so neither is taken for a duplicate."""
    header = read(gguf([architecture(), key(b"a\n", u32(1)), key(b"a\\n", u32(2))]))
    assert (header.metadata["a\\n"], header.metadata["a\\\\n"]) == (1, 2)


@pytest.mark.parametrize("kind", NUMBERS)
def test_every_value_type_is_read(kind: str) -> None:
    """Scalars and short arrays of all types keep value and Python type."""
    header = read(gguf([architecture(), key("one", number(kind, 1)), key("llama.list", array(kind, [0, 1, 1]))]))
    wanted = {"f32": float, "f64": float, "bool": bool}.get(kind, int)
    one, listed = header.metadata["one"], header.metadata["llama.list"]
    assert isinstance(listed, tuple)
    assert (one, listed) == (1, (0, 1, 1))
    assert {type(one), *map(type, listed)} == {wanted}


def test_big_arrays_and_strings_are_skipped() -> None:
    """Vocabularies are counted, not built; so is a string of two megabytes."""
    data = gguf(
        [
            architecture(),
            key("tokenizer.ggml.tokens", strings(["token"] * 50_000)),
            key("tokenizer.ggml.scores", array("f32", [0.0] * 50_000)),
            key("llama.long", array("u32", [1] * 5000)),
            key("tokenizer.huggingface.json", string(b"x" * (2 << 20))),
            key("llama.after", u32(7)),
        ]
    )
    header = read(data)
    assert header.metadata["tokenizer.ggml.tokens"] == SkippedArray("string", 50_000)
    assert header.metadata["tokenizer.ggml.scores"] == SkippedArray("float32", 50_000)
    assert header.metadata["llama.long"] == SkippedArray("uint32", 5000)
    assert header.metadata["tokenizer.huggingface.json"] == SkippedString(2 << 20)
    assert header.metadata["llama.after"] == 7


def test_values_that_are_kept_have_a_budget() -> None:
    """A header of many long strings is refused before they fill the memory."""
    keys = [architecture(), *(key(f"k{index}", string(b"x" * (1 << 20))) for index in range(17))]
    assert _verdict(gguf(keys)) == "limit_exceeded"


@pytest.mark.parametrize("data", samples())
def test_a_file_cut_anywhere_is_refused(data: bytes) -> None:
    """Every proper prefix of a sound file raises one of our errors; none is taken for the whole."""
    read(data)
    for length in range(len(data)):
        with pytest.raises(HeaderError):
            read(data[:length])


def test_a_complete_mixture_of_experts_header_is_accepted() -> None:
    """D23: whether a file is corrupt is for these bounds to say, not for a loader's message."""
    parts = [f"blk.{layer}.{part}.weight" for layer in range(2) for part in ("attn_q", "ffn_gate_exps", "ffn_gate_inp")]
    table = [tensor(part, [32, 2], F16, 128 * index) for index, part in enumerate(parts)]
    header = read(gguf([architecture("qwen3moe"), key("qwen3moe.block_count", u32(2))], table, data=128 * 6))
    assert [entry.layer for entry in header.tensors] == [0, 0, 0, 1, 1, 1]


def test_a_window_smaller_than_the_header_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading through a window of 64 bytes, as over a network, changes nothing; skipped bytes are never asked for."""
    data = gguf([architecture(), key("k", string(b"x" * (2 << 20))), *(key(f"a{i}", u32(i)) for i in range(50))])
    asked: list[int] = []

    class Counted(BytesSource):
        def read_at(self, offset: int, n: int) -> bytes:
            asked.append(n)
            return super().read_at(offset, n)

    whole = read(data)
    monkeypatch.setattr("agent.header.parse.Cursor", partial(Cursor, window=64))
    header = parse(Counted(data, "fuzz.gguf"), Path("fuzz.gguf"))
    assert header == whole
    assert sum(asked) < 8192
