"""A small deterministic model for the stand-ins: layers of whole numbers with recurrent state, and a wire that may lose bits.

It is no language model. What matters is that every layer, every position and every piece of state changes the tokens that
follow, so that an error in one stage shows in the tokens, at once or later.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

WIDTH = 8
VOCABULARY = 64
_PRIME = 2039  # below 2048, so that a half-precision wire keeps every value
_HEAD_BYTES = 4096

State = list[int]


def fault() -> str:
    """The failure that a test asks the stand-ins for; empty for none."""
    return os.environ.get("STANDIN_FAULT", "")


def tokenize(text: str) -> list[int]:
    """One token a word."""
    return [sum(hashlib.sha256(word.encode()).digest()) % VOCABULARY for word in text.split()] or [0]


def piece(token: int) -> str:
    """The text of a token."""
    return f" w{token}"


def encode(values: list[int], wire: str) -> bytes:
    """Activations on the wire. q8 keeps eight bits of each, as one scale for all allows."""
    if wire == "f32":
        return struct.pack(f"<{WIDTH}f", *values)
    if wire == "f16":
        return struct.pack(f"<{WIDTH}e", *values)
    return struct.pack(f"<{WIDTH}B", *(value * 255 // _PRIME for value in values))


def decode(data: bytes, wire: str) -> list[int]:
    """The inverse of `encode`, as far as there is one."""
    if wire in ("f32", "f16"):
        return [round(value) for value in struct.unpack(f"<{WIDTH}{'f' if wire == 'f32' else 'e'}", data)]
    return [value * _PRIME // 255 for value in struct.unpack(f"<{WIDTH}B", data)]


@dataclass
class Layers:
    """The layers [start, end) of the model in a file, with the state of each sequence.

    `wrong_from` is the position from which a seeded error shows; None for none.
    """

    model: Path
    start: int
    end: int
    wrong_from: int | None = None
    states: dict[str, list[State]] = field(default_factory=dict)
    kept: dict[str, list[State]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with self.model.open("rb") as file:
            self._seed = hashlib.sha256(file.read(_HEAD_BYTES)).digest()

    def embed(self, token: int) -> list[int]:
        """Activations of a token before the first layer."""
        return self._numbers("embedding", token)

    def run(self, sequence: str, position: int, values: list[int]) -> list[int]:
        """Activations after the last of these layers; the state of `sequence` moves on."""
        states = self.states.setdefault(sequence, [[0] * WIDTH for _ in range(self.start, self.end)])
        for layer, state in zip(range(self.start, self.end), states, strict=True):
            factors, shifts = self._numbers("factor", layer), self._numbers("shift", layer)
            turned = values[1:] + values[:1]
            values = [
                (value * factor + other * shift + kept + position + 1) % _PRIME
                for value, other, factor, shift, kept in zip(values, turned, factors, shifts, state, strict=True)
            ]
            state[:] = [(3 * kept + value) % _PRIME for kept, value in zip(state, values, strict=True)]
        if self.wrong_from is not None and position >= self.wrong_from:
            values = [(value + 1) % _PRIME for value in values]
        return values

    def token(self, values: list[int]) -> int:
        """The token that follows."""
        weights = self._numbers("output", 0)
        return sum(value * weight for value, weight in zip(values, weights, strict=True)) % VOCABULARY

    def keep(self, sequence: str, name: str) -> None:
        """Record the state of a sequence."""
        self.kept[name] = [list(state) for state in self.states[sequence]]

    def restore(self, name: str, sequence: str) -> None:
        """Give a recorded state to a sequence; a seeded fault loses it on the way."""
        recorded = self.kept[name]
        lost = fault() == "cache-loses-state" and self.start > 0
        self.states[sequence] = [[0] * WIDTH if lost else list(state) for state in recorded]

    def _numbers(self, name: str, index: int) -> list[int]:
        digest = hashlib.sha256(self._seed + f"{name}/{index}".encode()).digest()
        return [
            1 + int.from_bytes(digest[2 * place : 2 * place + 2], "little") % (_PRIME - 1) for place in range(WIDTH)
        ]


def seeded_position(stage: int) -> int | None:
    """From which position a stage is wrong: never in the first one, and in the others as the fault says."""
    if stage == 0:
        return None
    return {"mismatch": 0, "fail-but-0": 0, "late-error": 30}.get(fault())
