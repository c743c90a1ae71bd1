"""Models in several files."""

from __future__ import annotations

import shutil
from pathlib import Path

import gguf as gguf_py
import numpy as np
import pytest

from agent.errors import HeaderInvalid
from agent.header.reader import read_header, read_model_header
from tests.agent.header.kit import architecture, gguf, key, number, tensor, u32

N_TENSORS = 6


def _write(folder: Path, **limits: int | bool) -> list[Path]:
    """Let gguf-py write a model in shards."""
    writer = gguf_py.GGUFWriter(folder / "model.gguf", "llama", **limits)
    writer.add_block_count(3)
    for index in range(N_TENSORS):
        part = ("attn_q", "ffn_up")[index % 2]
        writer.add_tensor(f"blk.{index // 2}.{part}.weight", np.full((4, 32), index, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("*.gguf"))


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three files of two tensors each."""
    files = _write(tmp_path, split_max_tensors=2)
    assert [file.name for file in files] == [f"model-{index}-of-00003.gguf" for index in ("00001", "00002", "00003")]
    return files


def _verdict(path: Path) -> str:
    with pytest.raises(HeaderInvalid) as caught:
        read_model_header(path)
    return caught.value.verdict


@pytest.mark.parametrize("named", [0, 1, 2])
def test_any_shard_leads_to_the_whole_model(shards: list[Path], named: int) -> None:
    """C15: the order is the index's, whichever file is named; facts are merged over all shards."""
    header = read_model_header(shards[named])
    assert header.path == shards[0]
    assert header.architecture == "llama"
    assert [entry.layer for entry in header.tensors] == [0, 0, 1, 1, 2, 2]
    assert [entry.shard for entry in header.tensors] == [0, 0, 1, 1, 2, 2]
    assert [shard.path for shard in header.shards] == shards
    assert header.file_size == sum(file.stat().st_size for file in shards)


def test_the_data_of_each_tensor_is_where_the_header_says(shards: list[Path]) -> None:
    """Offsets count from the data section of the tensor's own shard."""
    header = read_model_header(shards[0])
    for index, entry in enumerate(header.tensors):
        shard = header.shards[entry.shard]
        start = shard.data_offset + entry.offset
        assert entry.n_bytes == 4 * 32 * 4
        assert (
            np.frombuffer(shard.path.read_bytes()[start : start + entry.n_bytes], np.float32).tolist() == [index] * 128
        )


def test_a_first_shard_without_tensors_is_joined(tmp_path: Path) -> None:
    """D17: shard 1 may hold metadata alone; the layers come from the others."""
    files = _write(tmp_path, split_max_tensors=2, small_first_shard=True)
    header = read_model_header(files[0])
    assert [shard.n_tensors for shard in header.shards] == [0, 2, 2, 2]
    assert {entry.layer for entry in header.tensors} == {0, 1, 2}


def test_a_model_in_one_file_is_itself(tmp_path: Path) -> None:
    """Without split.count the model reader and the file reader agree."""
    (file,) = _write(tmp_path)
    assert read_model_header(file) == read_header(file)


def test_missing_shards_are_named(shards: list[Path]) -> None:
    """D16: 1 of 3 shards: both missing files are named, and what to do."""
    shards[1].unlink()
    shards[2].unlink()
    with pytest.raises(HeaderInvalid) as caught:
        read_model_header(shards[0])
    assert caught.value.verdict == "missing_shards"
    assert shards[1].name in str(caught.value)
    assert shards[2].name in str(caught.value)


def test_the_first_shard_missing_is_named(shards: list[Path]) -> None:
    """D16: a later shard cannot stand for the model."""
    shards[0].unlink()
    assert _verdict(shards[1]) == "missing_shards"


@pytest.mark.parametrize(
    "name", ["model.gguf", "model-00001-of-00004.gguf", "model-00002-of-00003.gguf", "model-1-of-3.gguf"]
)
def test_a_renamed_shard_is_refused(shards: list[Path], name: str) -> None:
    """D16: the name and split.no / split.count must agree."""
    renamed = shards[0].rename(shards[0].with_name(f"x-{name}"))
    assert _verdict(renamed) == "split_mismatch"


def test_a_whole_model_named_like_a_shard_is_refused(tmp_path: Path) -> None:
    """D16: a derived file must not match the split pattern."""
    (file,) = _write(tmp_path)
    assert _verdict(file.rename(tmp_path / "stage-00001-of-00002.gguf")) == "split_mismatch"


def test_shards_in_the_wrong_order_are_refused(shards: list[Path]) -> None:
    """C15: two files that changed names are noticed by split.no."""
    spare = shards[0].with_name("spare")
    shards[1].rename(spare)
    shards[2].rename(shards[1])
    spare.rename(shards[2])
    assert _verdict(shards[0]) == "split_mismatch"


def test_a_shard_of_another_model_is_refused(shards: list[Path], tmp_path: Path) -> None:
    """C15: counts that differ give a foreign shard away."""
    other = tmp_path / "other"
    other.mkdir()
    foreign = _write(other, split_max_tensors=3)
    shutil.copy(foreign[1], shards[1])
    assert _verdict(shards[0]) == "split_mismatch"


def test_a_model_joined_with_cat_is_refused(shards: list[Path], tmp_path: Path) -> None:
    """C15: all shards in one file, whatever its name."""
    joined = b"".join(shard.read_bytes() for shard in shards)
    for name in ("joined.gguf", shards[0].name):
        path = tmp_path / name
        path.write_bytes(joined)
        with pytest.raises(HeaderInvalid) as caught:
            read_header(path)
        assert caught.value.verdict == "concatenated"


def test_a_shard_with_bytes_behind_its_data_is_refused(shards: list[Path]) -> None:
    """C15: a shard ends with its own data."""
    with shards[1].open("ab") as file:
        file.write(b"\1" * 64)
    assert _verdict(shards[0]) == "concatenated"


def _shard(number_: int, name: str, total: int = 2, *, arch: str | None = None) -> bytes:
    keys = [] if arch is None else [architecture(arch), key(f"{arch}.block_count", u32(1))]
    keys += [
        key("split.count", number("u16", 2)),
        key("split.no", number("u16", number_)),
        key("split.tensors.count", number("i32", total)),
    ]
    return gguf(keys, [tensor(name)], data=128)


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        pytest.param(_shard(1, "blk.0.attn_q.weight"), "duplicate_tensor", id="D15-same-name-in-both-shards"),
        pytest.param(_shard(1, "blk.0.attn_k.weight", 3), "split_mismatch", id="D16-tensor-counts-differ"),
        pytest.param(_shard(1, "blk.0.attn_k.weight", arch="qwen3"), "split_mismatch", id="D16-architectures-differ"),
        pytest.param(_shard(1, "blk.0.attn_k.weight")[:-1], "truncated", id="D16-second-shard-truncated"),
        pytest.param(gguf([], [tensor("b")], data=128), "missing_key", id="D16-second-shard-without-split-keys"),
    ],
)
def test_shards_that_contradict_each_other_are_refused(tmp_path: Path, second: bytes, verdict: str) -> None:
    """Duplicate tensors are named with both shards and offsets; counts and architectures must agree."""
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(_shard(0, "blk.0.attn_q.weight", arch="llama"))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(second)
    with pytest.raises(HeaderInvalid) as caught:
        read_model_header(tmp_path / "m-00001-of-00002.gguf")
    assert caught.value.verdict == verdict
    if verdict == "duplicate_tensor":
        assert "in shard 1 (at 0) and in shard 2 (at 0)" in str(caught.value)


def test_fewer_tensors_than_promised_are_refused(tmp_path: Path) -> None:
    """D16: split.tensors.count is the sum over all shards."""
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(_shard(0, "a", 3, arch="llama"))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(_shard(1, "b", 3))
    assert _verdict(tmp_path / "m-00001-of-00002.gguf") == "split_mismatch"


def test_a_later_shard_alone_says_so(shards: list[Path]) -> None:
    """Reading one later file as a model points at the first."""
    with pytest.raises(HeaderInvalid) as caught:
        read_header(shards[2])
    assert caught.value.verdict == "missing_architecture"
    assert "shard 3" in str(caught.value)
