"""Batteries: which lanes a family owes for an event, with their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from matrixgen.minimums import least_comparisons

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Every lane name there is. A lane of RESERVED has a name and no implementation yet; no battery may owe it.
LANES = (
    "inspect",
    "contract",
    "single-step",
    "chain",
    "boundary-sweep",
    "dtype-matrix",
    "state-handoff",
    "cache-resident",
    "cache-recurrent",
    "cache-policy",
    "concurrent-record",
    "radix-cache",
    "conversation",
    "determinism",
    "edges",
    "package",
    "media-prefill",
    "backend-parity",
    "refuse",
)
RESERVED = ("abi",)
#: Events that may run code of a fork: twins on hosted machines only.
UNTRUSTED_EVENTS = ("pull-request",)
#: The event of a person who names what to run: a family in no tier, or in quarantine, runs here when it is named.
BY_HAND = "manual-full"


class LaneSpec(NamedTuple):
    """A lane that is owed, with every parameter filled in, and the least number of comparisons that make it count."""

    name: str
    params: Mapping[str, Any]
    min_comparisons: int = 1


class Timeout(NamedTuple):
    """Minutes a leg may take: a base and a part that grows with the bytes of the weights."""

    base_minutes: int
    minutes_per_gib: int

    def minutes(self, size: int) -> int:
        """Whole minutes for `size` bytes."""
        return self.base_minutes + -(-size * self.minutes_per_gib // 2**30)


class Battery(NamedTuple):
    """What one event asks of one tier. `lanes` maps lane name to the parameters that differ from the default."""

    subject: str
    backends: tuple[str, ...]
    timeout: Timeout
    lanes: Mapping[str, Mapping[str, Any]]


class Batteries(NamedTuple):
    """All of batteries.json. `defaults`, `shapes` and `backends` are keyed by lane, `events` by event and tier.

    `backends` holds the lanes that are owed on some backends only.
    """

    defaults: Mapping[str, Mapping[str, Any]]
    shapes: Mapping[str, tuple[str, ...]]
    events: Mapping[str, Mapping[int, Battery]]
    backends: Mapping[str, tuple[str, ...]]

    def lanes_for(self, battery: Battery, shape: str, backend: str | None = None) -> tuple[LaneSpec, ...]:
        """The lanes of `battery` that a family of `shape` owes on `backend` (None: on any), in the battery's order."""
        owed = []
        for name, override in battery.lanes.items():
            if shape in self.shapes[name] and backend in (None, *self.backends.get(name, (backend,))):
                params = {**self.defaults[name], **override}
                owed.append(LaneSpec(name, params, least_comparisons(name, params)))
        return tuple(owed)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Batteries:
        """From a batteries.json that matches the schema."""
        return cls(
            defaults={name: lane["params"] for name, lane in data["lanes"].items()},
            shapes={name: tuple(lane["shapes"]) for name, lane in data["lanes"].items()},
            backends={name: tuple(lane["backends"]) for name, lane in data["lanes"].items() if "backends" in lane},
            events={
                event: {
                    int(tier): Battery(
                        subject=entry["subject"],
                        backends=tuple(entry["backends"]),
                        timeout=Timeout(
                            base_minutes=entry["timeout"]["base_minutes"],
                            minutes_per_gib=entry["timeout"]["minutes_per_gib"],
                        ),
                        lanes=entry["lanes"],
                    )
                    for tier, entry in tiers.items()
                }
                for event, tiers in data["events"].items()
            },
        )
