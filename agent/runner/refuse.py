"""Whether the build refuses a family that was dropped: asked with a file that says its architecture and nothing else.

A build that still knows the architecture goes on to read its metadata and fails on a missing key; one that never knew it says
that it is unknown. Only the clean words of the product, ``unsupported family``, are the refusal that users are promised.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agent.errors import AgentError
from agent.lanes.result import Findings, LaneResult
from agent.runner.supervise import ask_child

LANE = "refuse"
_CLEAN_WORDS = "unsupported family"
_TIMEOUT_SECONDS = 120


class Refusal(NamedTuple):
    """How a build answered: the lane's result, and version and libraries of the llama.cpp that was asked; empty if it died."""

    result: LaneResult
    engine: Mapping[str, Any]


def check_refusal(architecture: str) -> Refusal:
    """Try to load a bare file of `architecture`; pass only if nothing is loaded and the error is the clean one.

    Raises:
        InfraError: llama.cpp did not answer in time.
    """
    findings = Findings(LANE)
    with tempfile.TemporaryDirectory(prefix="skippy-refuse-") as folder:
        path = Path(folder) / f"{architecture}.gguf"
        write_bare_file(path, architecture)
        child = ask_child("agent.runner.refuse", [str(path)], _TIMEOUT_SECONDS)
    words = " | ".join(line.strip() for line in child.stderr.splitlines() if line.strip()) or "it said nothing"
    answer, engine = _read_answer(child.stdout)
    findings.expect(answer != "loaded", f"the build loads a bare file of {architecture}")
    findings.expect(child.returncode == 0, f"the build dies on {architecture} instead of refusing it: {words[-300:]}")
    findings.expect(
        _CLEAN_WORDS in words.lower(),
        f"the build does not say {_CLEAN_WORDS!r} of {architecture}; it says: {words[-300:]}",
    )
    return Refusal(findings.result(f"{architecture} is refused as an {_CLEAN_WORDS}"), engine)


def write_bare_file(path: Path, architecture: str) -> None:
    """A GGUF with `general.architecture` and no tensor."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _read_answer(text: str) -> tuple[str, Mapping[str, Any]]:
    """What the child said last; llama.cpp may have written to the same place before."""
    try:
        data = json.loads(text.splitlines()[-1])
        return str(data["answer"]), dict(data["engine"])
    except (IndexError, ValueError, KeyError, TypeError):
        return "", {}


def _answer(path: Path) -> dict[str, Any]:
    from agent.engine.devices import choose_device
    from agent.engine.library import load_library
    from agent.engine.model import Model
    from agent.runner.child import engine_facts

    answer = "loaded"
    try:
        Model(path, choose_device("cpu")).close()
    except AgentError as error:
        sys.stderr.write(f"{error}\n")
        answer = "refused"
    return {"answer": answer, "engine": engine_facts(load_library())}


if __name__ == "__main__":
    print(json.dumps(_answer(Path(sys.argv[1]))))  # noqa: T201 - the answer to the parent
