"""Puts the parts of a stage together as one GGUF, as the product does before it loads the stage.

The product loads a file that lacks the other layers; an unpatched llama.cpp does not. With `stand_ins` the file has all
tensors of the model, and those that the stage does not own are zeros: holes in the file, which take no room and hold nothing
of the model. Loaded by llama.cpp and fed with what crosses its first cut, such a file computes the stage and nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.errors import HeaderError, PackageInvalid, UsageError
from agent.package.container import (
    ALIGNMENT_KEY,
    Advance,
    Piece,
    ignore,
    mark,
    named_errors,
    pieces_of,
    read_pairs,
    same_data,
    write_gguf,
    writing,
)
from agent.package.manifest import Package
from agent.package.ownership import Shared, owner_of, words
from agent.package.parts import faults_of, strangers
from agent.package.stage import StageParts

_LEFT_OUT = ("split.", "skippy.slice.", "skippy.package.", "skippy.stage.")
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True, kw_only=True)
class Materialised:
    """A stage as one file.

    Attributes:
        path: the file.
        size: bytes, holes included.
        sha256: None where the file has holes.
        tensors: of the stage's own parts.
        stand_ins: tensors that are zeros.
    """

    path: Path
    size: int
    sha256: str | None
    tensors: int
    stand_ins: int


def materialise(
    package: Package, stage: StageParts, out: Path, *, stand_ins: bool = False, advance: Advance = ignore
) -> Materialised:
    """Verify the parts of a stage and write them as one GGUF; only these parts have to be here.

    Args:
        package: holds the parts.
        stage: which ones.
        out: replaced, once all of it is written.
        stand_ins: add zeros for the tensors of all other parts, whose headers are then read too.
        advance: told of the bytes that are hashed and written.

    Raises:
        PackageInvalid: a part is not what the manifest says, or holds what it does not own; all faults are named.
        PackageNotWritten: the system refuses.
        UsageError: the name would be taken for that of a shard.
    """
    if _SHARD.search(out.name):
        raise UsageError(f"{out.name} is the name of a shard, and llama.cpp would look for the others: choose another")
    own = _own_pieces(package, stage, advance)
    pieces = list((_with_stand_ins(package, own) if stand_ins else own).values())
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    with named_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    alignment = package.header(package.parts[Shared.METADATA]).alignment
    written = write_gguf(draft, _pairs(package, stage, stand_ins=stand_ins), pieces, alignment, advance)
    with writing(draft):
        draft.replace(out)
    return Materialised(
        path=out,
        size=written.size,
        sha256=written.sha256,
        tensors=len(own),
        stand_ins=len(pieces) - len(own),
    )


def _own_pieces(package: Package, stage: StageParts, advance: Advance) -> dict[str, Piece]:
    faults: list[str] = []
    pieces: dict[str, Piece] = {}
    for part in stage.parts:
        wrong = list(faults_of(package, part, advance))
        faults += wrong
        if wrong:
            continue
        header = package.header(part)
        faults += strangers(part, header)
        for name, piece in pieces_of(header).items():
            first = pieces.setdefault(name, piece)
            if first is not piece and not (owner_of(piece.tensor) == Shared.METADATA and _same(first, piece)):
                faults.append(f"{words(part.owner)} holds {name} once more, with other contents")
    if faults:
        raise PackageInvalid(f"{package.folder}: stage {stage} cannot be put together:\n  " + "\n  ".join(faults))
    return pieces


def _same(one: Piece, other: Piece) -> bool:
    return (one.tensor.type, one.tensor.shape) == (other.tensor.type, other.tensor.shape) and same_data(one, other)


def _with_stand_ins(package: Package, own: Mapping[str, Piece]) -> dict[str, Piece]:
    """All tensors of the model in the order of the parts; those that are not in `own` without data."""
    pieces: dict[str, Piece] = {}
    for part in package.parts.values():
        try:
            header = package.header(part)
        except HeaderError as error:
            raise PackageInvalid(
                f"{package.folder}: {words(part.owner)} ({part.path}) is needed for the shapes of what the stage does not "
                f"own: {error.verdict}: {error.detail}"
            ) from None
        for name, piece in pieces_of(header).items():
            pieces.setdefault(name, own.get(name, Piece(tensor=piece.tensor)))
    return pieces


def _pairs(package: Package, stage: StageParts, *, stand_ins: bool) -> dict[str, bytes]:
    """The model's metadata, and what says that this is no whole model."""
    metadata = package.place(package.parts[Shared.METADATA])
    pairs = {key: pair for key, pair in read_pairs(metadata).items() if not key.startswith(_LEFT_OUT)}
    pairs.setdefault(ALIGNMENT_KEY, mark(ALIGNMENT_KEY, package.header(package.parts[Shared.METADATA]).alignment))
    marks: dict[str, bool | int | str] = {
        "skippy.package.materialized": True,
        "skippy.package.part_count": len(stage.parts),
        "skippy.stage.layer_start": stage.start,
        "skippy.stage.layer_end": stage.end,
        "skippy.stage.others_are_zeros": stand_ins,
    }
    return pairs | {key: mark(key, value) for key, value in marks.items()}
