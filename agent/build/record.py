"""`build.json`: what a build is made of, and the digest of every file in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from agent.binding.layout import Layout
from agent.errors import BuildInvalid, LayoutInvalid

SCHEMA_VERSION = 1
RECORD = "build.json"
LIBRARIES = "lib"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_MODES = (0o644, 0o755)
_MOST_MEMBERS = 1000
_MOST_BYTES = 16 * 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A file with size, sha256 and mode, or a link to a file beside it (then `link` is its name)."""

    path: str
    size: int = 0
    sha256: str = ""
    mode: int = 0o644
    link: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; the mode is written in octal."""
        if self.link is not None:
            return {"path": self.path, "link": self.link}
        return {"path": self.path, "size": self.size, "sha256": self.sha256, "mode": f"{self.mode:o}"}


@dataclass(frozen=True, kw_only=True)
class BuildRecord:
    """What a build is.

    Attributes:
        key: build key of the plan; empty where there was no plan.
        commit: commit of llama.cpp; None where the sources did not say.
        patches: (name, sha256) of every patch, in order.
        patch_digest: digest of the queue; empty without one.
        backend: cpu, cuda, metal, vulkan or rocm.
        system: os, arch, the C library's name and the oldest version that will do.
        toolchain: versions of compiler, cmake, and of what the backend needs.
        flags: what cmake was given, without paths.
        layout: the structs, measured against the headers that were compiled.
        needed: names of libraries that a library asks the loader for and that are not in the build, by library.
        members: every file and link.
    """

    key: str
    commit: str | None
    patches: tuple[tuple[str, str], ...]
    patch_digest: str
    backend: str
    system: Mapping[str, str]
    toolchain: Mapping[str, str]
    flags: tuple[str, ...]
    layout: Layout
    needed: Mapping[str, Sequence[str]]
    members: tuple[Member, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "key": self.key,
            "commit": self.commit,
            "patches": [{"name": name, "sha256": sha256} for name, sha256 in self.patches],
            "patch_digest": self.patch_digest,
            "backend": self.backend,
            "system": dict(self.system),
            "toolchain": dict(self.toolchain),
            "flags": list(self.flags),
            "needed": {name: list(names) for name, names in self.needed.items()},
            "members": [member.to_json() for member in self.members],
            "layout": self.layout.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any, where: str) -> BuildRecord:
        """Read a record, which may come from anywhere.

        Raises:
            BuildInvalid: it is not one, or names a member that no build has.
        """
        try:
            if data["schema_version"] != SCHEMA_VERSION:
                raise BuildInvalid(
                    f"{where}: {RECORD} has schema version {data['schema_version']!r}; this agent reads {SCHEMA_VERSION}: "
                    "make the build with the same version of the agent"
                )
            record = cls(
                key=_text(data["key"]),
                commit=None if data["commit"] is None else _text(data["commit"]),
                patches=tuple((_text(patch["name"]), _digest(patch["sha256"])) for patch in data["patches"]),
                patch_digest=_text(data["patch_digest"]),
                backend=_text(data["backend"]),
                system={_text(name): _text(value) for name, value in data["system"].items()},
                toolchain={_text(name): _text(value) for name, value in data["toolchain"].items()},
                flags=tuple(map(_text, data["flags"])),
                layout=Layout.from_json(data["layout"]),
                needed={_text(name): tuple(map(_text, names)) for name, names in data["needed"].items()},
                members=tuple(map(_member, data["members"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError, LayoutInvalid) as error:
            raise BuildInvalid(f"{where}: {RECORD} cannot be read ({error}): make the build again") from error
        _check_members(record.members, where)
        return record

    def summary(self) -> dict[str, Any]:
        """What a person wants to see of it."""
        fields = asdict(self)
        return {name: fields[name] for name in ("commit", "patch_digest", "backend", "system", "toolchain", "key")}


def _member(data: Any) -> Member:
    path = _text(data["path"])
    if "link" in data:
        return Member(path=path, link=_text(data["link"]))
    size, mode = data["size"], int(_text(data["mode"]), 8)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"the size of {path} is {size!r}")
    if mode not in _MODES:
        raise ValueError(f"the mode of {path} is {mode:o}")
    return Member(path=path, size=size, sha256=_digest(data["sha256"]), mode=mode)


def _check_members(members: Sequence[Member], where: str) -> None:
    names = {member.path for member in members}
    troubles = []
    if not members or len(members) > _MOST_MEMBERS:
        troubles.append(f"it lists {len(members)} members")
    if sum(member.size for member in members) > _MOST_BYTES:
        troubles.append(f"its members are larger than {_MOST_BYTES >> 30} GiB")
    if len({name.casefold() for name in names}) != len(members):
        troubles.append("it lists a member twice")
    for member in members:
        parts = member.path.split("/")
        if not all(_PART.fullmatch(part) for part in parts) or member.path == RECORD:
            troubles.append(f"the member {member.path!r} would not stay inside of its folder")
        elif member.link is not None and str(PurePosixPath(member.path).with_name(member.link)) not in names:
            troubles.append(f"the link {member.path!r} leads to {member.link!r}, which is no member beside it")
    if troubles:
        raise BuildInvalid(f"{where}: {RECORD} is refused: {troubles[0]}. Make the build again and fetch it anew")


def _text(value: Any) -> str:
    if not isinstance(value, str) or any(ord(letter) < 32 for letter in value):
        raise ValueError(f"{value!r} is no text")
    return value


def _digest(value: Any) -> str:
    if not _SHA256.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is no sha256")
    return str(value)
