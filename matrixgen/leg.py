"""What a plan is made of: legs, builds, what was skipped, and the plan itself, each with its JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from matrixgen.battery import LaneSpec
from matrixgen.caches import NO_WEIGHTS, CacheChoice
from matrixgen.canonical import digest_of_members
from matrixgen.cost import UNKNOWN, Estimate
from matrixgen.errors import UnknownFamily
from matrixgen.family import Family, FileDigest
from matrixgen.pin import Pin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Leg:
    """One cell of a matrix: a family on a backend with its lanes. `files` is empty for a twin."""

    id: str
    family: Family
    backend: str
    subject: str
    lanes: tuple[LaneSpec, ...]
    runner: str
    runs_on: tuple[str, ...]
    timeout_minutes: int
    build_key: str
    model_key: str | None
    files: tuple[FileDigest, ...]
    cache: CacheChoice = NO_WEIGHTS
    estimate: Estimate = UNKNOWN

    @property
    def size(self) -> int:
        """Bytes to fetch; 0 for a twin."""
        return sum(file.size or 0 for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """The `leg` object of the plan schema."""
        return {
            "id": self.id,
            "family": self.family.to_row(),
            "backend": self.backend,
            "subject": self.subject,
            "lanes": [lane._asdict() for lane in self.lanes],
            "runner": self.runner,
            "runs_on": list(self.runs_on),
            "timeout_minutes": self.timeout_minutes,
            "build_key": self.build_key,
            "model_key": self.model_key,
            "files": [file._asdict() for file in self.files],
            "cache": self.cache._asdict(),
            "estimate": self.estimate._asdict(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Leg:
        """From the `leg` object of the plan schema."""
        return cls(
            **{
                **data,
                "family": Family.from_row(data["family"]),
                "lanes": tuple(LaneSpec(**lane) for lane in data["lanes"]),
                "runs_on": tuple(data["runs_on"]),
                "files": tuple(FileDigest(**file) for file in data["files"]),
                "cache": CacheChoice(**data["cache"]),
                "estimate": Estimate(**data["estimate"]),
            }
        )


class Build(NamedTuple):
    """Prebuilt binaries that legs wait for; one for each key. `artifact` is a legal artifact name."""

    key: str
    artifact: str
    backend: str
    os: str
    arch: str
    runner: str
    runs_on: tuple[str, ...]
    timeout_minutes: int

    def to_json(self) -> dict[str, Any]:
        """The `build` object of the plan schema."""
        return {
            "key": self.key,
            "artifact": self.artifact,
            "backend": self.backend,
            "os": self.os,
            "arch": self.arch,
            "runner": self.runner,
            "runs_on": list(self.runs_on),
            "timeout_minutes": self.timeout_minutes,
        }


class Skipped(NamedTuple):
    """Something that was selected and is not tested as asked, with the reason. Absent is never silently green."""

    family: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All legs of one event, in the order of family and backend."""

    schema_version: int
    event: str
    pin: Pin
    legs: tuple[Leg, ...]
    builds: tuple[Build, ...]
    skipped: tuple[Skipped, ...]

    @property
    def digest(self) -> str:
        """`sha256:<64 hex>` of the canonical JSON without the digest."""
        return digest_of_members({**self._head(), "legs": (leg.to_json() for leg in self.legs)})

    def leg(self, leg_id: str) -> Leg:
        """The leg with this id. Raises UnknownFamily, which names the nearest ids."""
        for leg in self.legs:
            if leg.id == leg_id:
                return leg
        raise UnknownFamily(leg_id, [leg.id for leg in self.legs], what="leg", where="the plan")

    def body(self) -> dict[str, Any]:
        """The JSON object of the plan without its digest."""
        return {**self._head(), "legs": [leg.to_json() for leg in self.legs]}

    def text(self) -> Iterator[str]:
        """plan.json in parts: readable, one leg a line, ASCII, the same bytes for the same plan."""
        head = self._head()
        yield "{\n"
        for key in ("schema_version", "event", "pin", "builds", "skipped"):
            yield f'"{key}": {_line(head[key])},\n'
        yield '"legs": [\n'
        for number, leg in enumerate(self.legs):
            yield (",\n" if number else "") + _line(leg.to_json())
        yield f'\n],\n"digest": "{self.digest}"\n}}\n'

    def _head(self) -> dict[str, Any]:
        """All but the legs, which may be many."""
        return {
            "schema_version": self.schema_version,
            "event": self.event,
            "pin": self.pin.to_json(),
            "builds": [build.to_json() for build in self.builds],
            "skipped": [entry._asdict() for entry in self.skipped],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """From a plan that matches its schema; the digest is not looked at."""
        return cls(
            schema_version=data["schema_version"],
            event=data["event"],
            pin=Pin.from_json(data["pin"]),
            legs=tuple(Leg.from_json(leg) for leg in data["legs"]),
            builds=tuple(Build(**{**build, "runs_on": tuple(build["runs_on"])}) for build in data["builds"]),
            skipped=tuple(Skipped(**entry) for entry in data["skipped"]),
        )
