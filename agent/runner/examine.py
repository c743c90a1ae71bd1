"""The contract of a model, derived in a child process."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.errors import AgentError, InfraError, ModelRefused
from agent.runner.supervise import ask_child, last_words

_TIMEOUT_SECONDS = 3600


def examine(path: Path, device: str | None, *, answer: bool = False) -> dict[str, Any]:
    """Load `path` and return its contract, in full and as it is recorded, as plain JSON values; on request with its answer.

    Raises:
        ModelRefused: llama.cpp does not load it, or dies; the message holds its words.
        InfraError: the device is not here, or llama.cpp did not answer in time.
    """
    child = ask_child("agent.runner.examine", [str(path), device or "", "answer" if answer else ""], _TIMEOUT_SECONDS)
    lines = child.stdout.splitlines()
    if child.returncode != 0 or not lines:
        raise ModelRefused(f"llama.cpp died on {path.name} (exit code {child.returncode}): {last_words(child.stderr)}")
    found: dict[str, Any] = json.loads(lines[-1])
    if "error" in found:
        cause = InfraError if found["infra"] else ModelRefused
        raise cause(f"{found['error']}")
    return found


def _examine(path: Path, device: str | None, answer: bool) -> dict[str, Any]:
    from agent.contracts import describe
    from agent.engine.anatomy import Anatomy
    from agent.engine.devices import choose_device
    from agent.engine.model import Model
    from agent.engine.session import Shape
    from agent.lanes.answer import ask
    from agent.lanes.policy import select_policy
    from agent.lanes.subject import DEFAULT_MICRO_BATCH

    try:
        chosen = choose_device(device)
        with Model(path, chosen) as model:
            anatomy = Anatomy(model, Shape(micro_batch=DEFAULT_MICRO_BATCH))
            contract = anatomy.contract
            now = describe(contract)
            return {
                "recorded": now.to_json(),
                **({"answer": asdict(ask(anatomy))} if answer else {}),
                "contract": {
                    "state": [*map(str, contract.state)],
                    "width": model.facts.n_embd,
                    "legal_cuts": list(contract.legal_cuts),
                    "illegal": {str(cut.layer): list(cut.forbidden_by) for cut in contract.cuts if cut.forbidden_by},
                    "frontier": list(now.frontier),
                    "tokens": now.tokens,
                    "cache": str(select_policy(contract.state)),
                    "device": f"{chosen.name} ({chosen.description})",
                },
            }
    except AgentError as error:
        return {"error": str(error), "infra": isinstance(error, InfraError)}


if __name__ == "__main__":
    print(json.dumps(_examine(Path(sys.argv[1]), sys.argv[2] or None, bool(sys.argv[3]))))  # noqa: T201 - the answer to the parent
