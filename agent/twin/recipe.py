"""What describes a twin: the architecture, its layer pattern, and the metadata that a converter would write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

Scalar = bool | int | float | str
MetaValue = Scalar | Sequence[Scalar]

LETTERS = frozenset("ARBN")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A twin before it is built.

    Attributes:
        architecture: what `general.architecture` says, for example ``qwen3next``.
        n_layer: number of layers (`block_count`).
        metadata: the architecture's keys without their ``<architecture>.`` prefix; only keys that files of the real
            family carry. Integers become uint32 (int32 when negative or in a list), floats float32.
        pattern: one letter a layer: ``A`` attention, ``R`` recurrent, ``B`` both, ``N`` neither.
        source: where the layer pattern comes from.
        notes: what differs from the real family, and why.
        vocabulary: number of tokens; some architectures fix a least one.
        omit: names of tensors that llama.cpp accepts but the real family does not have (shell patterns).
        layout: how the family's converter stores what llama.cpp takes in two ways: ``fused-qkv`` writes `attn_qkv` in place
            of three projections, ``split-gate-up`` writes `ffn_gate_exps` and `ffn_up_exps` in place of one tensor.
        seed: chooses other random weights; set where the first ones leave two tokens nearly equal.
        gains: scales of weights that need another one than usual, by shell pattern; the first that fits is used.
        shards: of a model in several files, the names of the tensors in each; empty for one file.
    """

    architecture: str
    n_layer: int
    metadata: Mapping[str, MetaValue]
    pattern: str
    source: str
    notes: str = ""
    vocabulary: int = 256
    omit: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    seed: int = 0
    gains: Mapping[str, float] = field(default_factory=dict)
    shards: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if len(self.pattern) != self.n_layer or not set(self.pattern) <= LETTERS:
            raise ValueError(
                f"{self.architecture}: the pattern needs {self.n_layer} letters of A, R, B, N; it is {self.pattern!r}"
            )

    @property
    def digest(self) -> str:
        """sha256, 64 hex digits, over all that shapes the file: everything but the words of `source` and `notes`."""
        content = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("source", "notes")}
        content["metadata"] = dict(self.metadata)
        content["gains"] = list(self.gains.items())  # their order decides which one is used
        if not self.shards:
            del content["shards"]  # answers are recorded under the digests of recipes from before there were shards
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """What records call the twin: 12 hex digits, which change with all that shapes the file."""
        return self.digest[:12]


def periodic(n_layer: int, period: int, attention_at: int) -> str:
    """A pattern with attention where ``layer % period == attention_at`` and recurrence elsewhere."""
    return "".join("A" if layer % period == attention_at else "R" for layer in range(n_layer))


def attention_at(n_layer: int, layers: Sequence[int]) -> str:
    """A pattern with attention at the given layers and recurrence elsewhere."""
    return "".join("A" if layer in layers else "R" for layer in range(n_layer))


def where(pattern: str, letters: str, value: int, otherwise: int = 0) -> tuple[int, ...]:
    """A list with one number a layer: `value` at layers whose letter is in `letters`, `otherwise` elsewhere."""
    return tuple(value if letter in letters else otherwise for letter in pattern)
