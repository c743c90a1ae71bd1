"""What the parent tells the child, and what the child says back: JSON, one object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.contracts import RecordedContract
from matrixgen.family import Family


@dataclass(frozen=True, kw_only=True)
class Job:
    """A battery to run on one model.

    Attributes:
        model: path of the GGUF (its first shard).
        device: name or backend of the device; None for the best one present.
        threads: of the CPU backend.
        family: the manifest row.
        random_weights: the model is a twin.
        recorded: the recorded contract of the architecture, if there is one.
        twin: the name of the twin whose answer is recorded; empty for weights and for the twin of a header.
        projector: the row's projector; None where it has none, and for a twin.
        lanes: (name, parameters) in the order in which they run; ``<fault>/<lane>`` runs a lane with a seeded fault.
    """

    model: Path
    device: str | None
    threads: int
    family: Family
    random_weights: bool
    recorded: RecordedContract | None
    lanes: tuple[tuple[str, Mapping[str, Any]], ...]
    twin: str = ""
    projector: Path | None = None

    def to_line(self) -> str:
        """As one line of JSON."""
        return json.dumps(
            {
                "model": str(self.model),
                "device": self.device,
                "threads": self.threads,
                "family": self.family.to_row(),
                "random_weights": self.random_weights,
                "recorded": self.recorded.to_json() if self.recorded else None,
                "twin": self.twin,
                "lanes": [[name, dict(params)] for name, params in self.lanes],
                "projector": str(self.projector) if self.projector else None,
            }
        )

    @classmethod
    def from_line(cls, line: str) -> Job:
        """The inverse of `to_line`."""
        data = json.loads(line)
        return cls(
            model=Path(data["model"]),
            device=data["device"],
            threads=data["threads"],
            family=Family.from_row(data["family"]),
            random_weights=data["random_weights"],
            recorded=RecordedContract.from_json(data["recorded"]) if data["recorded"] else None,
            twin=data["twin"],
            lanes=tuple((name, params) for name, params in data["lanes"]),
            projector=Path(data["projector"]) if data["projector"] else None,
        )
