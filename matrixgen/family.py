"""A family: one row of families.json, as frozen objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

HEX = frozenset("0123456789abcdef")
#: Architectures of projectors and draft models: llama.cpp loads them beside another model only.
SIDECARS = frozenset({"clip", "dflash", "eagle3", "gemma4-assistant"})


class FileDigest(NamedTuple):
    """One file of an artifact: `size` in bytes and `sha256` in hex, None while unknown."""

    path: str
    size: int | None
    sha256: str | None


class Artifact(NamedTuple):
    """Files of one repository at one revision."""

    repo: str
    revision: str | None
    selector: str
    files: tuple[FileDigest, ...]

    @property
    def pinned(self) -> bool:
        """True when the revision is a full commit id and every file has size and SHA-256."""
        return (
            self.revision is not None
            and len(self.revision) == 40
            and HEX.issuperset(self.revision)
            and bool(self.files)
            and all(file.size is not None and file.sha256 is not None for file in self.files)
        )

    @property
    def size(self) -> int:
        """Bytes of all files whose size is known."""
        return sum(file.size or 0 for file in self.files)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Artifact:
        """From the schema's `artifact` object."""
        return cls(
            repo=data["repo"],
            revision=data["revision"],
            selector=data["selector"],
            files=tuple(
                FileDigest(path=path, size=facts["size"], sha256=facts["sha256"])
                for path, facts in data["files"].items()
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Back to the schema's `artifact` object, in its key order."""
        return {
            "repo": self.repo,
            "revision": self.revision,
            "selector": self.selector,
            "files": {file.path: {"size": file.size, "sha256": file.sha256} for file in self.files},
        }


class Wire(NamedTuple):
    """What each activation wire type owes: required, validated, rejected or untested."""

    f32: str
    f16: str
    q8: str


class Family(NamedTuple):
    """One row. `family` is a label, `arch` is what the file's header must say."""

    family: str
    tier: int | None
    arch: str | None
    shape: str
    priority: str
    status: str
    artifact: Artifact | None
    projector: Artifact | None
    package: Artifact | None
    wire: Wire
    cache: str
    exact_state: str
    llama_models: tuple[str, ...]
    reason: str
    notes: str

    @property
    def dropped(self) -> bool:
        """True for a tombstone: it must be refused."""
        return self.tier == 3

    @property
    def standalone(self) -> bool:
        """False for what can never be a leg: a shared helper, a projector, a draft model."""
        return self.arch is not None and self.arch not in SIDECARS and self.status != "implementation_base"

    @property
    def unpinned(self) -> str | None:
        """Why the weights cannot be planned, or None when they can."""
        if self.shape == "package":
            return "package row: its weights are never fetched whole"
        for role, artifact in (("artifact", self.artifact), ("projector", self.projector)):
            if artifact is None:
                if role == "artifact":
                    return "not pinned: the row has no artifact"
            elif artifact.revision is None:
                return f"not pinned: {role} {artifact.repo} has no revision"
            elif not artifact.pinned:
                return f"not pinned: {role} {artifact.repo} lacks the size or sha256 of a file"
        return None

    @property
    def weight_files(self) -> tuple[FileDigest, ...]:
        """Files of the artifact, then of the projector."""
        return tuple(f for artifact in (self.artifact, self.projector) if artifact is not None for f in artifact.files)

    @property
    def weight_size(self) -> int:
        """Bytes of the weight files whose size is known."""
        return sum(file.size or 0 for file in self.weight_files)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Family:
        """From one row that matches the schema."""

        def artifact(key: str) -> Artifact | None:
            return None if row[key] is None else Artifact.from_json(row[key])

        return cls(
            family=row["family"],
            tier=row["tier"],
            arch=row["arch"],
            shape=row["shape"],
            priority=row["priority"],
            status=row["status"],
            artifact=artifact("artifact"),
            projector=artifact("projector"),
            package=artifact("package"),
            wire=Wire(f32=row["wire"]["f32"], f16=row["wire"]["f16"], q8=row["wire"]["q8"]),
            cache=row["cache"],
            exact_state=row["exact_state"],
            llama_models=tuple(row["llama_models"]),
            reason=row["reason"],
            notes=row["notes"],
        )

    def to_row(self) -> dict[str, Any]:
        """Back to the row, keys in the one fixed order."""

        def json_of(artifact: Artifact | None) -> dict[str, Any] | None:
            return None if artifact is None else artifact.to_json()

        return {
            "family": self.family,
            "tier": self.tier,
            "arch": self.arch,
            "shape": self.shape,
            "priority": self.priority,
            "status": self.status,
            "artifact": json_of(self.artifact),
            "projector": json_of(self.projector),
            "package": json_of(self.package),
            "wire": {"f32": self.wire.f32, "f16": self.wire.f16, "q8": self.wire.q8},
            "cache": self.cache,
            "exact_state": self.exact_state,
            "llama_models": list(self.llama_models),
            "reason": self.reason,
            "notes": self.notes,
        }
