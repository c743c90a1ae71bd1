"""Called workflows in the place of their calls.

Where a job of a called workflow fails, act runs neither the gate nor the caller's later jobs, and GitHub runs them. So a red
run is shown with the called jobs in the file of the caller, under their names, with what the call gives in place of inputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.workflows.walker import WORKFLOWS

_TEXT = {path.name: path.read_text(encoding="utf-8") for path in WORKFLOWS}
# a chunk is a called workflow in a matrix; act runs the first one, and a test has no more than that
_CHUNK, _FIRST_CHUNK = "matrix.matrix", "fromJSON(needs.plan.outputs.chunks).include[0].matrix"


def flattened(text: str) -> str:
    """The workflow `text` without calls."""
    data = _load(text)
    while calls := [name for name, job in data["jobs"].items() if "uses" in job]:
        data["jobs"] = _inline(data["jobs"], calls[0])
    return yaml.safe_dump(data, sort_keys=False, width=1000)


def flatten_in(product: Path, workflow: str) -> None:
    """Flatten a workflow of a checkout."""
    path = product / ".github" / "workflows" / workflow
    path.write_text(flattened(path.read_text(encoding="utf-8")), encoding="utf-8")


def _inline(jobs: Mapping[str, Any], called: str) -> dict[str, Any]:
    call = jobs[called]
    workflow = _load(_TEXT[call["uses"].rpartition("/")[2]])
    declared, theirs = workflow["on"]["workflow_call"], workflow["jobs"]
    chunked = "matrix" in call.get("strategy", {})
    given = {
        name: _as_expression(call["with"].get(name, entry.get("default", "")))
        for name, entry in declared["inputs"].items()
    }
    if chunked:
        given = {name: text.replace(_CHUNK, _FIRST_CHUNK) for name, text in given.items()}
    outputs = {name: _as_expression(entry["value"]) for name, entry in declared.get("outputs", {}).items()}
    last = list(theirs)[-1]

    def bind(text: str) -> str:
        return re.sub(r"\binputs\.(\w+)", lambda found: given[found[1]], text)

    def rename(text: str) -> str:
        text = text.replace(f"needs.{called}.result", f"needs.{last}.result")
        return re.sub(
            rf"needs\.{called}\.outputs\.(\w+)", lambda found: outputs[found[1]].replace("jobs.", "needs."), text
        )

    found: dict[str, Any] = {}
    for name, job in jobs.items():
        if name != called:
            found[name] = _map_text(job, rename)
            _set_needs(found[name], [n for need in _needs(job) for n in (theirs if need == called else [need])])
            continue
        for part, their in theirs.items():
            bound = _map_text(their, bind)
            asked = [need for need in _needs(call) if f"needs.{need}." in json.dumps(bound)]
            first = not _needs(their)
            _set_needs(bound, _needs(call) if first else [*_needs(their), *asked])
            if first and "if" in call:
                bound["if"] = call["if"]
            found[part] = bound
    return found


def _load(text: str) -> dict[str, Any]:
    data: dict[Any, Any] = yaml.safe_load(text)
    if True in data:
        data["on"] = data.pop(True)  # YAML 1.1 reads the key `on` as a word for true
    return data


def _needs(job: Mapping[str, Any]) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else list(needs)


def _set_needs(job: dict[str, Any], needs: list[str]) -> None:
    job.pop("needs", None)
    if needs:
        job["needs"] = needs


def _map_text(value: Any, change: Callable[[str], str]) -> Any:
    """The same data with every text changed."""
    if isinstance(value, dict):
        return {name: _map_text(entry, change) for name, entry in value.items()}
    if isinstance(value, list):
        return [_map_text(entry, change) for entry in value]
    return change(value) if isinstance(value, str) else value


def _as_expression(value: object) -> str:
    """A value as it stands inside of an expression."""
    if not isinstance(value, str):
        return json.dumps(value)
    inside = re.fullmatch(r"\$\{\{ (.*) \}\}", value)
    return f"({inside[1]})" if inside else "'{}'".format(value.replace("'", "''"))
