"""Which parts of a package a stage owns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.errors import StageInvalid
from agent.package.manifest import Package, Part
from agent.package.ownership import OUTPUT_MATRIX, Owner, Shared

_RANGE = re.compile(r"([0-9]{1,4}):([0-9]{1,4})")


@dataclass(frozen=True, kw_only=True)
class StageParts:
    """A stage, [start, end) of the layers, and what it owns.

    Attributes:
        start, end: layers of the trunk.
        trunk: layers of the model itself.
        layers: all layers that it owns; those of prediction (MTP) heads go with the last layer of the trunk.
        parts: in the order in which they are put together.
        tied: it is the last stage and takes the token embeddings too, since they are its output matrix.
    """

    start: int
    end: int
    trunk: int
    layers: range
    parts: tuple[Part, ...]
    tied: bool

    @property
    def first(self) -> bool:
        """True if token ids enter here."""
        return self.start == 0

    @property
    def last(self) -> bool:
        """True if logits leave here."""
        return self.end == self.trunk

    @property
    def owners(self) -> frozenset[Owner]:
        """What its parts own."""
        return frozenset(part.owner for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes of its parts."""
        return sum(part.artifact_bytes for part in self.parts)

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


def parse_range(text: str) -> tuple[int, int]:
    """`START:END` as numbers.

    Raises:
        StageInvalid: it is something else, or empty.
    """
    found = _RANGE.fullmatch(text)
    if not found or int(found[1]) >= int(found[2]):
        raise StageInvalid(
            f"{text!r} is no stage: give START:END, the first layer and the one after the last, such as 0:9"
        )
    return int(found[1]), int(found[2])


def stage_parts(package: Package, start: int, end: int) -> StageParts:
    """The parts of the stage [start, end). Needs the metadata part, and for the last stage the output part, to be here.

    Raises:
        StageInvalid: the package has no such stage.
        HeaderError: one of these parts is missing or no sound GGUF.
    """
    trunk = trunk_layers(package)
    if end == package.layer_count:
        end = trunk
    if not 0 <= start < end <= trunk:
        raise StageInvalid(_no_stage(package, start, end, trunk))
    last = end == trunk
    layers = range(start, package.layer_count if last else end)
    tied = last and start > 0 and is_tied(package)
    owners: list[Owner] = [Shared.METADATA]
    if start == 0 or tied:
        owners.append(Shared.EMBEDDINGS)
    owners += layers
    if last:
        owners.append(Shared.OUTPUT)
    parts = tuple(package.parts[owner] for owner in owners)
    return StageParts(start=start, end=end, trunk=trunk, layers=layers, parts=parts, tied=tied)


def trunk_layers(package: Package) -> int:
    """Layers of the model itself, without those of prediction (MTP) heads.

    Raises:
        StageInvalid: the metadata part describes another number of layers than the manifest.
        HeaderError: the metadata part is missing or no sound GGUF.
    """
    header = package.header(package.parts[Shared.METADATA])
    trunk, total = header.trunk_layers, header.block_count
    # a converter may leave out the tensors of a prediction head, and then the package ends with the trunk
    if package.layer_count not in (trunk, total):
        raise StageInvalid(
            f"{package.folder}: the manifest has {package.layer_count} layers, block_count of its metadata part is {total}: "
            "package the model again"
        )
    return trunk


def is_tied(package: Package) -> bool:
    """True if the model has no output matrix of its own, so that the token embeddings serve at both ends."""
    output = package.header(package.parts[Shared.OUTPUT])
    return OUTPUT_MATRIX not in {tensor.name for tensor in output.tensors}


def _no_stage(package: Package, start: int, end: int, trunk: int) -> str:
    extra = package.layer_count - trunk
    what = f"{package.folder}: there is no stage [{start}, {end}): the model has {trunk} layers"
    if not extra:
        return f"{what}. Give two of 0 to {trunk}, the smaller one first"
    return (
        f"{what}, and {extra} of a prediction (MTP) head, which is never cut off: it goes with layer {trunk - 1}. "
        f"Give two of 0 to {trunk}, the smaller one first"
    )
