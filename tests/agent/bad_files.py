"""Files that are not the model that they should be, by the verdict that they must get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.agent.header.kit import architecture, gguf, key, number, string, tensor, u32

Make = Callable[[Path, bytes], None]


def _written(data: bytes) -> Make:
    def make(path: Path, _sound: bytes) -> None:
        path.write_bytes(data)

    return make


def _truncated(path: Path, sound: bytes) -> None:
    path.write_bytes(sound[: len(sound) // 2])


def _other_magic(path: Path, sound: bytes) -> None:
    path.write_bytes(b"ABCD" + sound[4:])


def _big_endian(path: Path, sound: bytes) -> None:
    path.write_bytes(sound[:4] + sound[4:8][::-1] + sound[8:])


def _folder(path: Path, _sound: bytes) -> None:
    path.mkdir()


def _nothing(_path: Path, _sound: bytes) -> None:
    """Write nothing."""


_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 5000000000\n"
_PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>401</body></html>"


def _model(name: str, *more: bytes, tensors: bool = True) -> bytes:
    entries = [architecture(name), key(f"{name}.block_count", u32(2)), *more]
    return gguf(entries, [tensor("output.weight")] if tensors else [], data=128 if tensors else 0)


# verdict -> how to make the file from the bytes of a sound one
UNREADABLE: dict[str, Make] = {
    "truncated": _truncated,
    "unknown_magic": _other_magic,
    "big_endian": _big_endian,
    "lfs_pointer": _written(_POINTER),
    "html_page": _written(_PAGE),
    "xml_error": _written(b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'),
    "json_document": _written(b'{"error": "Entry not found"}'),
    "empty": _written(b""),
    "gzip": _written(b"\x1f\x8b\x08\x00" + bytes(60)),
    "zip": _written(b"PK\x03\x04" + bytes(60)),
    "gguf_version": _written(b"GGUF" + (99).to_bytes(4, "little") + bytes(60)),
    "missing_architecture": _written(gguf([key("general.name", string("x"))], [tensor("output.weight")], data=128)),
    "not_a_file": _folder,
    "missing_file": _nothing,
}

# sound files that are no language model -> how to make them
OTHER_ROLES: dict[str, Make] = {
    "projector": _written(_model("clip", key("clip.projector_type", string("mlp")))),
    "vocab-only": _written(_model("qwen3", tensors=False)),
    "encoder": _written(_model("bert")),
    "not-causal": _written(_model("qwen3", key("qwen3.attention.causal", number("bool", 0)))),
    "adapter": _written(_model("llama", key("general.type", string("adapter")))),
}
