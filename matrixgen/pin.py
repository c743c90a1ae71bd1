"""The pin: which llama.cpp is under test, with its patch queue and the binding that runs it here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Patch(NamedTuple):
    """One patch of the queue; the order of the queue is part of its identity."""

    name: str
    sha256: str


class Binding(NamedTuple):
    """The package that carries llama.cpp into the agent; `llama_commit` is None where the package records none."""

    package: str
    version: str
    llama_version: str | None
    llama_commit: str | None


class Pin(NamedTuple):
    """`commit` is identity (40 hex); `version` is only a label beside it."""

    commit: str
    version: str | None
    patches: tuple[Patch, ...]
    binding: Binding
    toolchain_epoch: str
    cache_version: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pin:
        """From a pin.json that matches the schema."""
        binding = data["binding"]
        return cls(
            commit=data["commit"],
            version=data["version"],
            patches=tuple(Patch(name=patch["name"], sha256=patch["sha256"]) for patch in data["patches"]),
            binding=Binding(
                package=binding["package"],
                version=binding["version"],
                llama_version=binding["llama_version"],
                llama_commit=binding["llama_commit"],
            ),
            toolchain_epoch=data["toolchain_epoch"],
            cache_version=data["cache_version"],
        )

    def to_json(self) -> dict[str, Any]:
        """The object of pin.json, in its key order."""
        return {
            "schema_version": 1,
            "commit": self.commit,
            "version": self.version,
            "patches": [{"name": patch.name, "sha256": patch.sha256} for patch in self.patches],
            "binding": {
                "package": self.binding.package,
                "version": self.binding.version,
                "llama_version": self.binding.llama_version,
                "llama_commit": self.binding.llama_commit,
            },
            "toolchain_epoch": self.toolchain_epoch,
            "cache_version": self.cache_version,
        }
