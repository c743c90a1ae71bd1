"""Reads the header of a model file, or of all files of a split model."""

from __future__ import annotations

from pathlib import Path

from agent.header.model import Header, Shard, SkippedArray, SkippedString, TensorInfo, Value
from agent.header.parse import parse
from agent.header.source import FileSource
from agent.header.splits import merge, shard_names, shard_paths

__all__ = [
    "Header",
    "Shard",
    "SkippedArray",
    "SkippedString",
    "TensorInfo",
    "Value",
    "read_header",
    "read_model_header",
    "read_remote_header",
]


def read_header(path: Path) -> Header:
    """Read one file's header; of a split model, its first file.

    Raises:
        HeaderUnreadable: the file is not there or cannot be read.
        NotAGguf: it is of another format; the verdict names which.
        HeaderInvalid: it is a GGUF that contradicts itself, its size or a limit.
    """
    return _read(path, whole_model=True)


def read_model_header(path: Path) -> Header:
    """Read the header of a whole model. Any file of a split model may be named; its neighbours are found by name.

    Raises:
        HeaderUnreadable, NotAGguf, HeaderInvalid: as `read_header`, for any of the files.
        HeaderInvalid: `missing_shards`, `split_mismatch`, or `duplicate_tensor` across shards.
    """
    named = _read(path, whole_model=False)
    paths = shard_paths(path, named)
    if len(paths) == 1:
        return named if named.architecture else _read(path, whole_model=True)
    return merge([_read(shard, whole_model=index == 0) for index, shard in enumerate(paths)])


def read_remote_header(reference: str) -> Header:
    """Read the header of a whole model on the hub, ``hf://OWNER/REPO@REVISION/PATH.gguf``; of a split model, any of its files.

    Raises:
        RemoteUnreadable: the reference, the network or the answer is not what it should be, for any of the files.
        NotAGguf, HeaderInvalid: as `read_model_header`.
    """
    named, name = _read_remote(reference, whole_model=False)
    names = shard_names(name, named)
    if len(names) == 1:
        return named if named.architecture else _read_remote(reference, whole_model=True)[0]
    folder = reference.removesuffix(name)
    headers = []
    for index, shard in enumerate(names):
        is_named = shard == name and (named.architecture or index > 0)  # what was fetched is not fetched again
        headers.append(named if is_named else _read_remote(folder + shard, whole_model=index == 0)[0])
    return merge(headers)


def _read_remote(reference: str, *, whole_model: bool) -> tuple[Header, str]:
    """The header of one file and the file's name."""
    from agent.header.remote import HubSource

    source = HubSource(reference)
    return parse(source, Path(source.file_name), whole_model=whole_model), source.file_name


def _read(path: Path, *, whole_model: bool) -> Header:
    with FileSource(path) as source:
        return parse(source, path, whole_model=whole_model)
