"""Recorded contracts: what crossed the cuts of an architecture when somebody last looked, in terms that hold for any depth, and
what its twins answered then."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent.engine.contract import Contract, Crossing, Cut
from agent.errors import ContractsInvalid
from matrixgen.files import write_atomically

FILE_NAME = "contracts.json"

# the layer in a label; llama.cpp adds words to the names of views and copies: ``l_out-3 (copy)``
_LAYER = re.compile(r"\d+(?=(?: \(.*\))*$)")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a twin says to a fixed prompt: a reference that no run of today can stand in for.

    Attributes:
        tokens: the greedy ones.
        logits: some of the first position, in standard deviations from their mean.
    """

    tokens: tuple[int, ...]
    logits: tuple[float, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Answer:
        """From plain JSON values."""
        return cls(tokens=tuple(map(int, data["tokens"])), logits=tuple(map(float, data["logits"])))


@dataclass(frozen=True, kw_only=True)
class RecordedContract:
    """The contract of an architecture.

    Attributes:
        frontier: what crosses, with the layer relative to the cut k (``l_out-{k-1}``) unless it is one and the same
            tensor at every cut (``mul_mat@0``).
        tokens: token ids cross as well.
        caches: the distinct sets of cache tensors that a layer keeps.
        shared_state: layers read caches of layers below, which forbids cuts.
        answers: by the name of the twin (`Recipe.name`), since families of one architecture may have twins of their own.
    """

    frontier: tuple[str, ...]
    tokens: bool
    caches: tuple[str, ...]
    shared_state: bool
    answers: Mapping[str, Answer] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RecordedContract:
        """From plain JSON values."""
        return cls(
            frontier=tuple(data["frontier"]),
            tokens=bool(data["tokens"]),
            caches=tuple(data["caches"]),
            shared_state=bool(data["shared_state"]),
            answers={name: Answer.from_json(answer) for name, answer in data.get("answers", {}).items()},
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def describe(contract: Contract) -> RecordedContract:
    """The contract of a model as it is recorded."""
    legal = [cut for cut in contract.cuts if cut.legal]
    crossed = Counter(label for cut in legal for label in {crossing.label for crossing in cut.frontier})
    return RecordedContract(
        frontier=tuple(sorted({_pattern(crossing, cut, crossed) for cut in legal for crossing in cut.frontier})),
        tokens=any(cut.tokens for cut in legal),
        caches=tuple(sorted({"+".join(names) or "none" for names in contract.caches})),
        shared_state=any(cut.forbidden_by for cut in contract.cuts),
    )


def _pattern(crossing: Crossing, cut: Cut, crossed: Mapping[str, int]) -> str:
    """The label with its layer relative to the cut, unless one and the same tensor crosses several cuts."""
    found = _LAYER.search(crossing.label)
    if crossed[crossing.label] > 1 or crossing.layer != cut.layer - 1 or not found or int(found[0]) != crossing.layer:
        return crossing.label
    return _LAYER.sub("{k-1}", crossing.label)


def load_contracts(manifests: Path) -> dict[str, RecordedContract]:
    """All recorded contracts by architecture; none where the file does not exist.

    Raises:
        ContractsInvalid: the file cannot be read as what `write_contracts` writes.
    """
    path = manifests / FILE_NAME
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {architecture: RecordedContract.from_json(entry) for architecture, entry in data.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ContractsInvalid(
            f"{path} is not a file of recorded contracts ({error}): restore it, or record it again"
        ) from error


def write_contracts(manifests: Path, contracts: Mapping[str, RecordedContract]) -> None:
    """Write all contracts, one architecture a line, sorted."""
    lines = [
        f"{json.dumps(architecture)}: {json.dumps(contracts[architecture].to_json())}"
        for architecture in sorted(contracts)
    ]
    write_atomically(manifests / FILE_NAME, "{\n" + ",\n".join(lines) + "\n}\n")
