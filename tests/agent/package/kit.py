"""Packages of twins, models with prediction heads, split models, and parts that are signed anew after they were broken."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent.commands.folders import twin_folder
from agent.header.reader import Header, read_model_header
from agent.package.container import Piece, mark, pieces_of, read_pairs, read_piece, write_gguf
from agent.package.manifest import FILE_NAME, Package, read_package
from agent.package.write import Identity, write_package
from agent.twin.build import build_twin
from agent.twin.catalog import RECIPES
from agent.twin.metadata import write_gguf as write_twin
from agent.twin.weights import fill

IDENTITY = Identity(model_id="acme/model-GGUF:F32", created=1_790_000_000)

# small twins, one of each kind: dense, with experts, one matrix at both ends, windows in some layers, hybrid, and recurrent
# with tensors of no layer
KINDS = ("qwen3", "qwen3moe", "gemma", "gemma3", "lfm2", "rwkv7")


def data_of(piece: Piece) -> bytes:
    """The bytes of a tensor."""
    return b"".join(read_piece(piece))


def package_of(model: Path, folder: Path) -> Package:
    """A package of `model`."""
    return write_package(model, folder, IDENTITY)


def edit_manifest(package: Package, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest on disk."""
    path = package.folder / FILE_NAME
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def with_prediction_head(architecture: str, path: Path) -> Path:
    """A twin with one layer more, a prediction (MTP) head made like its last layer; written to `path`."""
    recipe = RECIPES[architecture]
    trunk = recipe.n_layer

    def longer(value: Any) -> Any:
        return (*value, value[-1]) if isinstance(value, tuple | list) and len(value) == trunk else value

    metadata = {name: longer(value) for name, value in recipe.metadata.items()} | {"nextn_predict_layers": 1}
    larger = dataclasses.replace(recipe, n_layer=trunk + 1, pattern=f"{recipe.pattern}A", metadata=metadata)
    header = read_model_header(build_twin(recipe, twin_folder()))
    tensors: list[tuple[str, Any]] = []
    for name, piece in pieces_of(header).items():
        values = np.frombuffer(data_of(piece), dtype=np.float32).reshape(piece.tensor.shape[::-1])
        tensors.append((name, values))
        if piece.tensor.layer == trunk - 1:
            tensors.append((f"blk.{trunk}.{piece.tensor.part}", values))
    width = header.get_uint(header.key("embedding_length"))
    for part, shape in {
        "eh_proj": (2 * width, width),
        "enorm": (width,),
        "hnorm": (width,),
        "embed_tokens": (width, recipe.vocabulary),
        "shared_head_head": (width, recipe.vocabulary),
        "shared_head_norm": (width,),
    }.items():
        name = f"blk.{trunk}.nextn.{part}.weight"
        tensors.append((name, fill(name, shape)))
    write_twin(path, larger, tensors)
    return path


def split_model(model: Path, folder: Path, groups: Sequence[Callable[[Piece], bool]]) -> list[Path]:
    """Write a model as shards as `llama-gguf-split` does: metadata in the first one; each group takes its tensors."""
    header = read_model_header(model)
    pairs, pieces = read_pairs(model), pieces_of(header)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for index, group in enumerate(groups):
        split = {
            "split.no": _number("split.no", 2, "H", index),
            "split.count": _number("split.count", 2, "H", len(groups)),
            "split.tensors.count": _number("split.tensors.count", 5, "i", len(pieces)),
        }
        path = folder / f"model-{index + 1:05d}-of-{len(groups):05d}.gguf"
        own = [piece for piece in pieces.values() if group(piece)]
        write_gguf(path, (pairs if index == 0 else {}) | split, own, header.alignment)
        paths.append(path)
    return paths


def copy_with(model: Path, path: Path, pieces: Iterable[Piece], pairs: Mapping[str, bytes] | None = None) -> Path:
    """A model of the same metadata with other tensors."""
    header = read_model_header(model)
    write_gguf(path, pairs if pairs is not None else read_pairs(model), list(pieces), header.alignment)
    return path


def retyped(piece: Piece, kind: int) -> Piece:
    """The same tensor with another type number; its size stays."""
    return dataclasses.replace(piece, tensor=dataclasses.replace(piece.tensor, type=kind))


def renamed(piece: Piece, name: str) -> Piece:
    """The same data under another name."""
    return dataclasses.replace(piece, tensor=dataclasses.replace(piece.tensor, name=name))


def projector(path: Path) -> Path:
    """A small multimodal projector, which names its type."""
    pairs = {
        "general.architecture": mark("general.architecture", "clip"),
        "general.type": mark("general.type", "mmproj"),
        "clip.projector_type": mark("clip.projector_type", "mlp"),
    }
    twin = pieces_of(read_model_header(build_twin(RECIPES["qwen3"], twin_folder())))
    write_gguf(path, pairs, [renamed(next(iter(twin.values())), "mm.0.weight")], 32)
    return path


def reread(package: Package) -> Package:
    """The package as it lies on the disk now."""
    return read_package(package.folder)


def header_of(path: Path) -> Header:
    """The header of a whole model."""
    return read_model_header(path)


def _number(name: str, kind: int, code: str, value: int) -> bytes:
    return struct.pack(f"<Q{len(name)}sI{code}", len(name), name.encode(), kind, value)
