"""Models in several files: `NAME-00001-of-0000N.gguf`, as `llama-gguf-split` writes them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.header.limits import MAX_SHARDS, MAX_TENSORS
from agent.header.text import printable
from agent.header.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agent.header.model import Header, TensorInfo

_NAME = re.compile(r"(?P<prefix>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)
_MISSING_SHOWN = 5


def shard_names(file_name: str, header: Header) -> tuple[str, ...]:
    """Return the names of the files of the model that the file belongs to, in their order; its own for one that is not split.

    Raises:
        HeaderInvalid: `split_mismatch` where the name and the metadata differ.
    """
    count = header.get_uint("split.count", 1)
    name = _NAME.fullmatch(file_name)
    if count <= 1:
        if name and int(name["count"]) > 1:
            header.fail(
                Verdict.SPLIT_MISMATCH,
                f"its name says shard {int(name['number'])} of {int(name['count'])}, its header says a whole model",
            )
        return (file_name,)
    if count > MAX_SHARDS:
        header.fail(Verdict.LIMIT_EXCEEDED, f"split.count is {count}; the limit is {MAX_SHARDS}")
    number = header.get_uint("split.no") + 1
    if not name or int(name["number"]) != number or int(name["count"]) != count:
        header.fail(
            Verdict.SPLIT_MISMATCH,
            f"its header says shard {number} of {count}, so its name must end with -{number:05d}-of-{count:05d}.gguf",
        )
    return tuple(shard_name(name["prefix"], index, count) for index in range(count))


def shard_name(prefix: str, index: int, count: int) -> str:
    """The name of file `index`, from 0 on, of `count`."""
    return f"{prefix}-{index + 1:05d}-of-{count:05d}.gguf"


def shard_paths(path: Path, header: Header) -> tuple[Path, ...]:
    """Return the files of the model that `path` belongs to, in their order; only `path` for one that is not split.

    Raises:
        HeaderInvalid: as `shard_names`, and `missing_shards` with the missing names.
    """
    paths = tuple(path.with_name(name) for name in shard_names(path.name, header))
    if len(paths) == 1:
        return paths
    missing = [printable(shard.name) for shard in paths if not shard.is_file()]
    if missing:
        names = ", ".join(missing[:_MISSING_SHOWN]) + (", ..." if len(missing) > _MISSING_SHOWN else "")
        header.fail(Verdict.MISSING_SHARDS, f"{len(missing)} of {len(paths)} shards are missing: {names}")
    return paths


def merge(headers: Sequence[Header]) -> Header:
    """Join the shards' headers: metadata of the first, tensors of all.

    Raises:
        HeaderInvalid: `split_mismatch`, `duplicate_tensor` or `limit_exceeded`.
    """
    first = headers[0]
    for index, header in enumerate(headers):
        _check_shard(first, header, index, len(headers))
    tensors = _joined(headers)
    expected = first.get_uint("split.tensors.count")
    if len(tensors) != expected:
        first.fail(
            Verdict.SPLIT_MISMATCH, f"split.tensors.count is {expected}, but the shards hold {len(tensors)} tensors"
        )
    return replace(
        first,
        tensors=tensors,
        file_size=sum(header.file_size for header in headers),
        shards=tuple(shard for header in headers for shard in header.shards),
    )


def _check_shard(first: Header, header: Header, index: int, count: int) -> None:
    for key, wanted in (
        ("split.count", count),
        ("split.no", index),
        ("split.tensors.count", first.get_uint("split.tensors.count")),
    ):
        found = header.get_uint(key)
        if found != wanted:
            header.fail(
                Verdict.SPLIT_MISMATCH, f"{key} is {found}, but must be {wanted} in shard {index + 1} of {count}"
            )
    if header.architecture not in ("", first.architecture):
        header.fail(
            Verdict.SPLIT_MISMATCH, f"it is a shard of a {header.architecture}, the first one of a {first.architecture}"
        )


def _joined(headers: Sequence[Header]) -> tuple[TensorInfo, ...]:
    seen: dict[str, TensorInfo] = {}
    for tensor in _numbered(headers):
        before = seen.setdefault(tensor.name, tensor)
        if before is not tensor:
            headers[tensor.shard].fail(
                Verdict.DUPLICATE_TENSOR,
                f"tensor {tensor.name} is in shard {before.shard + 1} (at {before.offset})"
                f" and in shard {tensor.shard + 1} (at {tensor.offset})",
            )
        if len(seen) > MAX_TENSORS:
            headers[0].fail(Verdict.LIMIT_EXCEEDED, f"the shards hold more than {MAX_TENSORS} tensors")
    return tuple(seen.values())


def _numbered(headers: Sequence[Header]) -> Iterator[TensorInfo]:
    for index, header in enumerate(headers):
        for tensor in header.tensors:
            yield replace(tensor, shard=index)
