"""Subjects that package their model wrongly, or put its stages together wrongly.

All but one sign what they break: sizes, counts and sha256 in the manifest are those of the broken part, so that only a look at
the tensors themselves can tell.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.header.reader import read_header
from agent.lanes.subject import Subject
from agent.package.container import Piece, pieces_of, read_pairs, write_gguf
from agent.package.manifest import FILE_NAME, Package, read_package
from agent.package.materialise import materialise
from agent.package.ownership import Owner, Shared, owner_of
from agent.package.stage import StageParts
from agent.package.write import write_manifest, write_part


def middle(package: Package) -> int:
    """A layer with one after it."""
    return (package.layer_count - 1) // 2


def chosen(pieces: Mapping[str, Piece]) -> str:
    """The tensor to go wrong: experts where there are any, since they are the largest and the easiest to misplace."""
    return next((name for name in pieces if "_exps." in name), next(reversed(list(pieces))))


def replace_part(package: Package, owner: Owner, pieces: Sequence[Piece]) -> Package:
    """Give a part other tensors and sign it anew."""
    folder, part = package.folder, package.parts[owner]
    draft = folder.with_name(f"{folder.name}-draft")
    pairs, alignment = read_pairs(package.place(part)), package.header(part).alignment
    signed = write_part(draft, owner, pairs, pieces, alignment, lambda _count: None)
    shutil.move(draft / signed.path, package.place(part))
    shutil.rmtree(draft)
    values = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    entry = values["shared"][owner] if isinstance(owner, Shared) else values["layers"][owner]
    entry.update(signed.to_json())
    write_manifest(folder, values)
    return read_package(folder)


def held(package: Package, owner: Owner) -> dict[str, Piece]:
    """The tensors of a part."""
    return pieces_of(package.header(package.parts[owner]))


class FlippedPart(Subject):
    """One byte of a layer's part is wrong, as a disk or a transfer does it."""

    def package(self, folder: Path) -> Package:
        """A package with it."""
        package = super().package(folder)
        _flip_last_byte(package.place(package.parts[middle(package)]))
        return package


class AlteredTensor(Subject):
    """A byte of a tensor was wrong before the part was signed."""

    def package(self, folder: Path) -> Package:
        """A package with it."""
        package = super().package(folder)
        layer = middle(package)
        pieces = held(package, layer)
        last = pieces[next(reversed(list(pieces)))]
        altered = folder.with_name("altered.gguf")
        write_gguf(altered, {}, [last], 1)
        _flip_last_byte(altered)
        wrong = Piece(tensor=last.tensor, file=altered, start=altered.stat().st_size - last.size)
        return replace_part(package, layer, [*(piece for piece in pieces.values() if piece is not last), wrong])


class LostTensor(Subject):
    """A layer's part lacks a tensor."""

    def package(self, folder: Path) -> Package:
        """A package without it."""
        package = super().package(folder)
        layer = middle(package)
        pieces = held(package, layer)
        lost = chosen(pieces)
        return replace_part(package, layer, [piece for name, piece in pieces.items() if name != lost])


class TensorTwice(Subject):
    """A tensor is in the part of its layer and in that of the next one."""

    def package(self, folder: Path) -> Package:
        """A package with both."""
        package = super().package(folder)
        layer = middle(package)
        pieces = held(package, layer)
        twice = pieces[chosen(pieces)]
        return replace_part(package, layer + 1, [*held(package, layer + 1).values(), twice])


class MovedExperts(Subject):
    """Experts of a layer (of a model without any, another tensor) are in the part of the next layer."""

    def package(self, folder: Path) -> Package:
        """A package in which the next layer owns them."""
        package = super().package(folder)
        layer = middle(package)
        pieces = held(package, layer)
        name = chosen(pieces)
        package = replace_part(package, layer + 1, [*held(package, layer + 1).values(), pieces[name]])
        return replace_part(package, layer, [piece for other, piece in pieces.items() if other != name])


class CrowdedStage(Subject):
    """A stage's file holds the layers of other stages too, so that it proves nothing about its own."""

    def materialise(self, package: Package, stage: StageParts, path: Path) -> None:
        """The whole model in place of the stage."""
        del stage
        whole = {name: piece for owner in package.parts for name, piece in held(package, owner).items()}
        metadata = package.parts[Shared.METADATA]
        write_gguf(path, read_pairs(package.place(metadata)), list(whole.values()), package.header(metadata).alignment)


class HollowStage(Subject):
    """A stage's file lacks what its last layer owns."""

    def materialise(self, package: Package, stage: StageParts, path: Path) -> None:
        """Zeros in place of that layer."""
        materialise(package, stage, path, stand_ins=True)
        metadata = package.parts[Shared.METADATA]
        whole = path.with_name("whole.gguf")
        path.replace(whole)
        pieces = pieces_of(read_header(whole))
        write_gguf(
            path,
            read_pairs(whole),
            [
                Piece(tensor=piece.tensor) if owner_of(piece.tensor) == stage.end - 1 else piece
                for piece in pieces.values()
            ],
            package.header(metadata).alignment,
        )
        whole.unlink()


def _flip_last_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, 2)
        (byte,) = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([byte ^ 1]))
