"""Brings the parts of one stage to this machine, and no others: the row pins the manifest, the manifest pins its parts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agent.errors import NotPinned, PackageInvalid
from agent.package.manifest import FILE_NAME, LATER_FILE_NAME, Package, Part, parse_manifest, read_package
from agent.package.ownership import Shared
from agent.package.stage import StageParts, stage_parts, trunk_layers
from agent.store.wanted import Wanted

if TYPE_CHECKING:
    from agent.store.store import Store
    from matrixgen.family import Artifact, Family


@dataclass(frozen=True, kw_only=True)
class LentStage:
    """A package of which this machine has one stage.

    Attributes:
        package: in a folder that holds the manifest and the stage's parts.
        stage: its parts.
        files: where the files lie: the manifest, the parts, and for the first stage the projectors.
    """

    package: Package
    stage: StageParts
    files: tuple[Path, ...]


@contextlib.contextmanager
def lend_stage(store: Store, family: Family, start: int, end: int) -> Iterator[LentStage]:
    """Fetch what the stage [start, end) of a package-backed family owns, every file verified, and keep it for a block.

    First the manifest; then the metadata part, which says how many layers there are, and for the last stage the output part,
    which says whether it needs the token embeddings; then the rest.

    Raises:
        NotPinned: the row names no package, or not the size and sha256 of its manifest.
        PackageInvalid: the manifest is not what it should be, or of a later format.
        StageInvalid: the package has no such stage.
        FetchFailed, NoSpace, StoreDenied, StoreBusy: from the store.
    """
    manifest = wanted_manifest(family)
    with contextlib.ExitStack() as kept:

        def lend(*parts: Part) -> dict[Wanted, Path]:
            return kept.enter_context(store.lend([manifest, *(wanted_part(manifest, part) for part in parts)]))

        package = read_package(lend()[manifest])
        metadata, output = package.parts[Shared.METADATA], package.parts[Shared.OUTPUT]
        package = read_package(lend(metadata)[manifest])
        if end >= trunk_layers(package):
            package = read_package(lend(metadata, output)[manifest])
        stage = stage_parts(package, start, end)
        files = lend(*stage.parts, *(package.projectors if stage.first else ()))
        yield LentStage(package=read_package(files[manifest]), stage=stage, files=tuple(files.values()))


def wanted_manifest(family: Family) -> Wanted:
    """The manifest of a family's package.

    Raises:
        NotPinned: the row names none, or not exactly.
        PackageInvalid: the package is of a later format.
    """
    artifact = family.package
    if artifact is None:
        raise NotPinned(f"the row {family.family} names no package: add one to it, or leave out --stage")
    file = next((file for file in artifact.files if PurePosixPath(file.path).name == FILE_NAME), None)
    if file is None:
        if any(PurePosixPath(file.path).name == LATER_FILE_NAME for file in artifact.files):
            raise PackageInvalid(
                f"the package of {family.family}, {artifact.repo}, is of a later format ({LATER_FILE_NAME}) that this "
                "skippy-agent does not read: name one of version 1"
            )
        raise NotPinned(
            f"the row {family.family} names the package {artifact.repo} without its {FILE_NAME}: add it to `files`, with its "
            "size and sha256, since it pins all parts"
        )
    return _pinned(artifact, file.path, file.size, file.sha256)


def pinned_parts(family: Family, blob: Callable[[str], Path]) -> frozenset[str]:
    """sha256 of every part that a family's package pins, so that a clean-up spares them; () where its manifest is not here.

    Args:
        family: a row of the manifest.
        blob: where a store keeps the file with a given sha256.
    """
    files = family.package.files if family.package else ()
    places = [blob(file.sha256) for file in files if file.sha256 and PurePosixPath(file.path).name == FILE_NAME]
    found: set[str] = set()
    for place in places:
        with contextlib.suppress(OSError, PackageInvalid):
            found |= {part.sha256 for part in parse_manifest(place.read_bytes(), place.parent).files}
    return frozenset(found)


def wanted_part(manifest: Wanted, part: Part) -> Wanted:
    """A part of the package of a manifest: beside it, with the size and digest that the manifest gives it."""
    return Wanted(
        repo=manifest.repo,
        revision=manifest.revision,
        path=(PurePosixPath(manifest.path).parent / part.path).as_posix(),
        size=part.artifact_bytes,
        sha256=part.sha256,
    )


def _pinned(artifact: Artifact, path: str, size: int | None, sha256: str | None) -> Wanted:
    if artifact.revision is None or size is None or sha256 is None:
        raise NotPinned(
            f"{path} of {artifact.repo} is not pinned: give the row a full revision, and size and sha256 of this file"
        )
    return Wanted(repo=artifact.repo, revision=artifact.revision, path=path, size=size, sha256=sha256)
