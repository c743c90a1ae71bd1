"""Workflows and composite actions as data.

Files are read with every scalar as text, so that `on` stays a key and `true` a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / "actions").glob("*/action.yml"))


@dataclass(frozen=True, kw_only=True)
class File:
    """A workflow or an action: its name, its text, and what YAML makes of it."""

    name: str
    text: str
    data: Mapping[str, Any]

    @property
    def jobs(self) -> Mapping[str, Any]:
        """Jobs of a workflow; none in an action."""
        found: Mapping[str, Any] = self.data.get("jobs", {})
        return found

    @property
    def events(self) -> Mapping[str, Any]:
        """What starts a workflow."""
        found: Mapping[str, Any] = self.data.get("on", {})
        return found

    def steps(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """(where, step) of all steps."""
        lists = {f"job {name}": job.get("steps", []) for name, job in self.jobs.items()}
        lists["action"] = self.data.get("runs", {}).get("steps", [])
        for where, steps in lists.items():
            for index, step in enumerate(steps, 1):
                yield f"{where} step {index}", step


def parse(name: str, text: str) -> File:
    """Read a file from its text."""
    return File(name=name, text=text, data=yaml.load(text, Loader=yaml.BaseLoader))


def read(path: Path) -> File:
    """Read a file of the project; an action is named by its folder."""
    name = path.name if path.name != "action.yml" else f"{path.parent.name}/action.yml"
    return parse(name, path.read_text(encoding="utf-8"))


def needs_of(job: Mapping[str, Any]) -> list[str]:
    """The jobs that a job waits for."""
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else list(needs)


def jobs_after(file: File, name: str) -> set[str]:
    """Jobs that run after `name`."""
    found: set[str] = set()
    while more := {other for other, job in file.jobs.items() if {name, *found} & set(needs_of(job))} - found:
        found |= more
    return found


def conditional_jobs(file: File) -> set[str]:
    """Jobs that do not run for every event, whose failure another job turns into its own."""
    return {
        name
        for name, job in file.jobs.items()
        if any(f"needs.{name}.result == 'success'" in other.get("if", "") for other in file.jobs.values())
    }
