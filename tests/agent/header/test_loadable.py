"""A loader that refuses a sound file: what that means is said from the header, not from the loader's words."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from agent.commands.folders import twin_folder
from agent.errors import ModelRefused
from agent.header.loadable import unknown_types, why_refused
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from tests.agent.header.kit import F16, UNKNOWN_TYPE, architecture, gguf, key, read, tensor, u32


def _file(name: str, kind: int) -> bytes:
    keys = [architecture(name), key(f"{name}.block_count", u32(1))]
    return gguf(keys, [tensor("blk.0.attn_q.weight", [32, 2], kind)], data=128)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        pytest.param(_file("qwen3moe", UNKNOWN_TYPE), "pin_lacks_type", id="D19-type-156"),
        pytest.param(_file("newarch", F16), "pin_lacks_architecture", id="D19-architecture"),
        pytest.param(_file("qwen3moe", F16), "loader_incompatible", id="D23-complete-file"),
    ],
)
def test_a_refusal_is_explained(data: bytes, word: str) -> None:
    """D19, D23: a pin that is too old, or a file that is whole; never "corrupt" for what our own checks found sound."""
    words = why_refused(read(data))
    assert words.startswith(f"{word}: ")
    assert "corrupt" not in words


def test_types_of_the_table_are_known() -> None:
    """Only what the table lacks counts."""
    assert unknown_types(read(_file("llama", F16))) == ()
    assert unknown_types(read(_file("llama", UNKNOWN_TYPE))) == (UNKNOWN_TYPE,)


def test_inspect_explains_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D19: llama.cpp itself refuses a twin with a tensor of a later type; the error says what that means."""
    from agent.commands.inspect import run

    data = bytearray(build_twin(recipe_for("qwen3"), twin_folder()).read_bytes())
    name = b"blk.0.ffn_up.weight"
    at = data.index(name) + len(name)
    (n_dims,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at + 4 + 8 * n_dims, UNKNOWN_TYPE)
    path = tmp_path / "later.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelRefused, match="pin_lacks_type: tensors are of type 156"):
        run(path, header_only=False, device="cpu", as_json=False)
    run(path, header_only=True, device=None, as_json=True)
    assert json.loads(capsys.readouterr().out)["unknown_tensor_types"] == [UNKNOWN_TYPE]
