"""Rules about the rows of families.json."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matrixgen.family import SIDECARS
from matrixgen.findings import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrixgen.content import Manifest
    from matrixgen.family import Artifact, Family

_SHARD = r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf"
_CACHES = {
    "dense": ("ResidentKv", "package-local ResidentKv", "disabled"),
    "looped": ("ResidentKv", "disabled"),
    "multimodal": ("ResidentKv", "package-local ResidentKv", "disabled"),
    "package": ("package-local ResidentKv", "disabled"),
    "recurrent": ("KvRecurrent", "disabled"),
    "hybrid": ("KvRecurrent", "disabled"),
    "encoder": ("disabled",),
}


def _at(index: int, key: str, id_: str, message: str, fix: str, severity: Severity = "error") -> Problem:
    return Problem(id_, "families.json", f"/families/{index}/{key}", message, fix, severity)


def unique_names(manifest: Manifest) -> Iterator[Problem]:
    """A name is one row."""
    seen: set[str] = set()
    for index, family in enumerate(manifest.families):
        if family.family in seen:
            what = f"{family.family} is already the name of another row"
            yield _at(index, "family", "MG011", what, "rename one of them or remove it")
        seen.add(family.family)


def kept_architecture_is_not_dropped(manifest: Manifest) -> Iterator[Problem]:
    """Code for a dropped architecture is removed, so a kept row of it could never load."""
    dropped = {family.arch: family.family for family in manifest.families if family.dropped and family.arch}
    for index, family in enumerate(manifest.families):
        if not family.dropped and family.arch in dropped:
            what = f"{family.family} has architecture {family.arch}, which tombstone {dropped[family.arch]} drops"
            fix = "write what the file's header says, pick another file, or take the tombstone back"
            yield _at(index, "arch", "MG012", what, fix)


def tombstones_say_what_and_why(manifest: Manifest) -> Iterator[Problem]:
    """A family is dropped for a reason, and its architecture is what is refused."""
    for index, family in enumerate(manifest.families):
        if family.dropped and not family.reason.strip():
            yield _at(index, "reason", "MG013", f"tombstone {family.family} has no reason", "say why it is dropped")
        if family.dropped and family.arch is None:
            what = f"tombstone {family.family} names no architecture to refuse"
            yield _at(index, "arch", "MG013", what, "write general.architecture of its files")


def repositories_agree_in_case(manifest: Manifest) -> Iterator[Problem]:
    """Two spellings of one repository are fetched twice, and collide on a disk that ignores case."""
    spelled: dict[str, str] = {}
    for index, family in enumerate(manifest.families):
        for role, artifact in _artifacts(family):
            first = spelled.setdefault(artifact.repo.lower(), artifact.repo)
            if first != artifact.repo:
                what = f"{artifact.repo} and {first} differ only by case"
                yield _at(index, f"{role}/repo", "MG014", what, "use the hub's spelling for both")


def multimodal_rows_have_a_projector(manifest: Manifest) -> Iterator[Problem]:
    """Without a projector the media path cannot be tested."""
    for index, family in enumerate(manifest.families):
        if family.tier in (1, 2) and family.shape == "multimodal" and family.projector is None:
            what = f"{family.family} is multimodal and of tier {family.tier}, but has no projector"
            yield _at(index, "projector", "MG015", what, "add the mmproj file, or change the shape if there is none")


def cache_follows_shape(manifest: Manifest) -> Iterator[Problem]:
    """Recurrent state is not in resident KV; an encoder has no cache."""
    for index, family in enumerate(manifest.families):
        if family.cache not in _CACHES[family.shape]:
            what = f"{family.family} is {family.shape} and its cache is {family.cache}"
            yield _at(index, "cache", "MG016", what, f"one of {', '.join(_CACHES[family.shape])}")


def tier_rows_can_be_legs(manifest: Manifest) -> Iterator[Problem]:
    """Shared helpers have no file, and projectors and draft models are loaded beside another model only."""
    for index, family in enumerate(manifest.families):
        if family.tier in (1, 2) and not family.standalone:
            kind = "is a projector or draft model" if family.arch in SIDECARS else "has no architecture of its own"
            what = f"{family.family} {kind} and cannot be of tier {family.tier}"
            yield _at(index, "tier", "MG017", what, "set it to null and certify a family that is built with it")


def package_rows_name_something(manifest: Manifest) -> Iterator[Problem]:
    """A package row says at least where its source is."""
    for index, family in enumerate(manifest.families):
        if family.shape == "package" and family.package is None and family.artifact is None:
            what = f"{family.family} is a package row and names neither package nor artifact"
            yield _at(index, "package", "MG018", what, "add one of them")


def roles_are_not_mixed(manifest: Manifest) -> Iterator[Problem]:
    """The model is not the projector, and the reverse."""
    for index, family in enumerate(manifest.families):
        model = [file.path for file in family.artifact.files] if family.artifact else []
        projector = [file.path for file in family.projector.files] if family.projector else []
        for path in model:
            if "mmproj" in path.lower():
                what = f"{path} of {family.family} looks like a projector"
                yield _at(index, "artifact/files", "MG019", what, "move it to `projector`")
        if family.artifact and family.projector and family.artifact.repo == family.projector.repo:
            for path in sorted(set(model) & set(projector)):
                what = f"{path} of {family.family} is model and projector at once"
                yield _at(index, "projector/files", "MG019", what, "name the mmproj file in `projector`")


def paths_are_distinct(manifest: Manifest) -> Iterator[Problem]:
    """Paths stay distinct on a disk that ignores case."""
    for index, family in enumerate(manifest.families):
        for role, artifact in _artifacts(family):
            lowered = [file.path.lower() for file in artifact.files]
            if len(set(lowered)) != len(lowered):
                what = f"two files of {artifact.repo} differ only by case"
                yield _at(index, f"{role}/files", "MG020", what, "keep the one that the row means")


def all_shards_are_named(manifest: Manifest) -> Iterator[Problem]:
    """A split file is loaded whole, so every shard is pinned."""
    for index, family in enumerate(manifest.families):
        if family.artifact is None or family.shape == "package":
            continue
        shards: dict[tuple[str, int], set[int]] = {}
        for file in family.artifact.files:
            if "-of-" in file.path and (match := re.fullmatch(_SHARD, file.path)):
                shards.setdefault((match["stem"], int(match["count"])), set()).add(int(match["number"]))
        for (stem, count), numbers in shards.items():
            if len(numbers) != count or min(numbers) != 1 or max(numbers) != count:
                missing = [str(n) for n in range(1, count + 1) if n not in numbers][:5]
                what = f"{stem} is split into {count} files, and the row names {len(numbers)}"
                yield _at(index, "artifact/files", "MG021", what, f"name all; missing: {', '.join(missing) or 'none'}")


def tier_rows_are_pinned(manifest: Manifest) -> Iterator[Problem]:
    """A row of a tier that is not pinned gets a twin only; that is worth knowing."""
    for index, family in enumerate(manifest.families):
        if family.tier in (1, 2) and family.shape != "package" and (why := family.unpinned):
            what = f"{family.family}: {why}; its legs run on a twin"
            yield _at(index, "artifact", "MG030", what, "fill in revision, size and sha256", "warning")


def _artifacts(family: Family) -> Iterator[tuple[str, Artifact]]:
    roles = (("artifact", family.artifact), ("projector", family.projector), ("package", family.package))
    return ((role, artifact) for role, artifact in roles if artifact is not None)


RULES = (
    unique_names,
    kept_architecture_is_not_dropped,
    tombstones_say_what_and_why,
    repositories_agree_in_case,
    multimodal_rows_have_a_projector,
    cache_follows_shape,
    tier_rows_can_be_legs,
    package_rows_name_something,
    roles_are_not_mixed,
    paths_are_distinct,
    all_shards_are_named,
    tier_rows_are_pinned,
)
