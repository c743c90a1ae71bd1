"""Writes a model as a layer package: one file a layer, and three for what belongs to none."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.digests import sha256_of_file
from agent.errors import PackageInvalid, PackageNotWritten, UsageError
from agent.header.reader import Header, read_header, read_model_header
from agent.header.role import require_causal, require_projector
from agent.package.container import (
    ALIGNMENT_KEY,
    ARCHITECTURE_KEY,
    Advance,
    Piece,
    ignore,
    named_errors,
    pieces_of,
    read_pairs,
    write_gguf,
    writing,
)
from agent.package.manifest import FILE_NAME, Package, Part, read_package
from agent.package.ownership import TOKEN_EMBEDDINGS, Owner, Shared, owner_of
from agent.store.space import shown_size

_SPLIT_KEYS = "split."


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Where a package comes from; what the manifest says about it.

    Attributes:
        model_id: coordinate of the model, `OWNER/REPO:SELECTOR`.
        repo, revision, file: of the source on the hub, where it is there.
        abi_version: of the product's library, `MAJOR.MINOR.PATCH`.
        created: seconds since 1970.
    """

    model_id: str
    repo: str | None = None
    revision: str | None = None
    file: str | None = None
    abi_version: str = "0.1.0"
    created: int = 0


def write_package(
    model: Path, folder: Path, identity: Identity, projectors: Sequence[Path] = (), advance: Advance = ignore
) -> Package:
    """Write `model` as a package into `folder`, which must not exist or be empty. The same inputs give the same bytes.

    Args:
        model: any file of a GGUF model, split or not.
        folder: made; holds all of the package or, after an error, does not exist.
        identity: for the manifest.
        projectors: GGUF files that are copied as they are.
        advance: told of the bytes of tensor data.

    Raises:
        HeaderError, WrongRole: a file is not what it should be.
        PackageInvalid: the model has a tensor of an unknown size, a layer without tensors, or no token embeddings.
        UsageError: the folder holds something.
        PackageNotWritten: the system refuses.
    """
    header = read_model_header(model)
    require_causal(header)
    owned = divide(header)
    for projector in projectors:
        require_projector(read_header(projector))
    _require_free(folder)
    _require_room(folder, [header, *map(read_header, projectors)])
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        _fill(draft, header, owned, identity, projectors, advance)
        with named_errors(folder):
            draft.replace(folder)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft)
    return read_package(folder)


def divide(header: Header) -> dict[Owner, list[Piece]]:
    """The tensors of a model by their owner: the shared parts first, then every layer.

    Raises:
        PackageInvalid: a layer without tensors, or no token embeddings.
    """
    owned: dict[Owner, list[Piece]] = {shared: [] for shared in Shared}
    for piece in pieces_of(header).values():
        owned.setdefault(owner_of(piece.tensor), []).append(piece)
    layers = sorted(owner for owner in owned if isinstance(owner, int))
    if layers not in (list(range(header.block_count)), list(range(header.trunk_layers))):
        raise PackageInvalid(f"{header.path}: {_wrong_layers(header, layers)}")
    if TOKEN_EMBEDDINGS not in {piece.tensor.name for piece in owned[Shared.EMBEDDINGS]}:
        raise PackageInvalid(f"{header.path}: {TOKEN_EMBEDDINGS} is missing: no stage could begin with it")
    return {owner: owned[owner] for owner in (*Shared, *layers)}


def model_pairs(header: Header) -> dict[str, bytes]:
    """The metadata of a model as one file, byte for byte: what `llama-gguf-split` added is left out."""
    pairs = read_pairs(header.shards[0].path)
    return {key: pair for key, pair in pairs.items() if not key.startswith(_SPLIT_KEYS)}


def path_of(owner: Owner) -> str:
    """Where a part lies in a package that is written here."""
    return f"shared/{owner}.gguf" if isinstance(owner, Shared) else f"layers/layer-{owner:03d}.gguf"


def write_part(
    folder: Path, owner: Owner, pairs: Mapping[str, bytes], pieces: Sequence[Piece], alignment: int, advance: Advance
) -> Part:
    """Write one part; returns what the manifest says of it.

    Raises:
        PackageNotWritten: the system refuses.
    """
    path = folder / path_of(owner)
    with named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    written = write_gguf(path, pairs, pieces, alignment, advance)
    return Part(
        owner=owner,
        path=path_of(owner),
        tensor_count=len(pieces),
        tensor_bytes=sum(piece.size for piece in pieces),
        artifact_bytes=written.size,
        sha256=written.sha256 or "",
    )


def write_manifest(folder: Path, values: Mapping[str, Any]) -> None:
    """Write the manifest.

    Raises:
        PackageNotWritten: the system refuses.
    """
    path = folder / FILE_NAME
    with writing(path):
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _wrong_layers(header: Header, layers: Sequence[int]) -> str:
    missing = sorted(set(range(header.trunk_layers)) - set(layers))
    if missing:
        return (
            f"layers {missing} have no tensors of their own: the file is not whole, or the model runs blocks more than once, "
            "and then no stage owns its weights alone"
        )
    return f"its tensors are of {len(layers)} layers, and block_count is {header.block_count}: convert the model again"


def _fill(
    draft: Path,
    header: Header,
    owned: Mapping[Owner, Sequence[Piece]],
    identity: Identity,
    projectors: Sequence[Path],
    advance: Advance,
) -> None:
    whole = model_pairs(header)
    # enough for every reader of GGUF files to open a part; the rest is in the metadata part, once
    few = {key: whole[key] for key in (ARCHITECTURE_KEY, ALIGNMENT_KEY) if key in whole}
    parts = [
        write_part(draft, owner, whole if owner == Shared.METADATA else few, pieces, header.alignment, advance)
        for owner, pieces in owned.items()
    ]
    copies = [_copy_projector(draft, projector) for projector in projectors]
    write_manifest(draft, _manifest(header, parts, copies, identity))


def _manifest(header: Header, parts: Iterable[Part], projectors: Sequence[Part], identity: Identity) -> dict[str, Any]:
    files = [_source_file(shard.path, identity) for shard in header.shards]
    shared = {part.owner: part.to_json() for part in parts if isinstance(part.owner, Shared)}
    layers = [{"layer_index": part.owner} | part.to_json() for part in parts if isinstance(part.owner, int)]
    source = {
        "path": files[0]["path"],
        "sha256": files[0]["sha256"],
        "repo": identity.repo,
        "revision": identity.revision,
        "primary_file": files[0]["path"],
    }
    return {
        "schema_version": 1,
        "model_id": identity.model_id,
        "source_model": {key: value for key, value in source.items() if value is not None} | {"files": files},
        "format": "layer-package",
        "layer_count": len(layers),
        "activation_width": header.get_uint(header.key("embedding_length")),
        "shared": shared,
        "layers": layers,
        "projectors": [{"kind": "mmproj"} | part.to_json() for part in projectors],
        "skippy_abi_version": identity.abi_version,
        "created_at_unix_secs": identity.created,
    }


def _source_file(path: Path, identity: Identity) -> dict[str, Any]:
    """A file of the source by its name in its repository; a path of this machine says nothing elsewhere."""
    beside = Path(identity.file).parent if identity.file else Path()
    return {
        "path": (beside / path.name).as_posix(),
        "size_bytes": path.stat().st_size,
        "sha256": sha256_of_file(path),
    }


def _copy_projector(draft: Path, projector: Path) -> Part:
    header = read_header(projector)
    path = f"projectors/{projector.name}"
    target = draft / path
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(projector, target)
    return Part(
        owner=Shared.EMBEDDINGS,
        path=path,
        tensor_count=len(header.tensors),
        tensor_bytes=sum(piece.size for piece in pieces_of(header).values()),
        artifact_bytes=header.file_size,
        sha256=sha256_of_file(target),
    )


def _require_free(folder: Path) -> None:
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(f"{folder} is there already: remove it, or name another folder")


def _require_room(folder: Path, headers: Sequence[Header]) -> None:
    needed = sum(header.file_size for header in headers)
    with named_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder.parent).free
    if needed > free:
        raise PackageNotWritten(
            f"the package needs {shown_size(needed)} and {folder.parent} has {shown_size(free)}: make room, or name another "
            "folder"
        )
