"""Join a llama.cpp checkout with the manifest: every model file has a row, every row has its model file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from matrixgen.errors import InvalidValue
from matrixgen.findings import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from matrixgen.content import Manifest
    from matrixgen.family import Family

_ARCHITECTURE = re.compile(r'\{\s*LLM_ARCH_\w+,\s*"([^"]{1,64})"\s*\}')
MAX_BYTES = 4 * 2**20
#: A P0 or P1 family with one of these has no evidence that its splits work, so the gate is open.
OPEN = (
    "needs_candidate",
    "candidate",
    "candidate_stateful",
    "candidate_multimodal",
    "needs_runtime_slice_support",
    "no_public_gguf_candidate",
)


class Inventory(NamedTuple):
    """`models` maps each stem of src/models/*.cpp to the rows that cover it; `architectures` is empty where none were found."""

    models: Mapping[str, tuple[Family, ...]]
    architectures: frozenset[str]
    problems: tuple[Problem, ...]


def take_inventory(manifest: Manifest, checkout: Path, *, gate: bool = False) -> Inventory:
    """Compare. With `gate`, an open P0 or P1 family is an error and not a warning.

    Raises InvalidValue when `checkout` has no src/models/*.cpp: an inventory of nothing is never green.
    """
    folder = checkout / "src" / "models"
    stems = sorted(path.stem for path in folder.glob("*.cpp"))
    if not stems:
        raise InvalidValue(f"{folder} has no .cpp file; give the root of a llama.cpp checkout with --llama-src")
    models = {stem: tuple(f for f in manifest.families if stem in f.llama_models) for stem in stems}
    architectures = _architectures(checkout / "src" / "llama-arch.cpp")
    problems = (
        *_unclassified(models),
        *_gone(manifest, frozenset(stems)),
        *_unknown_architectures(manifest, architectures),
        *_gate(manifest, "error" if gate else "warning"),
    )
    return Inventory(models=models, architectures=architectures, problems=problems)


def _architectures(path: Path) -> frozenset[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return frozenset(_ARCHITECTURE.findall(file.read(MAX_BYTES)))
    except OSError:
        return frozenset()


def _unclassified(models: Mapping[str, tuple[Family, ...]]) -> Iterator[Problem]:
    for stem, rows in models.items():
        if not rows:
            what = f"src/models/{stem}.cpp belongs to no row"
            fix = f"`matrixgen add {stem} ...`, or add {stem} to llama_models of the row that covers it"
            yield Problem("MG040", f"src/models/{_printable(stem)}.cpp", "", _printable(what), _printable(fix))


def _gone(manifest: Manifest, stems: frozenset[str]) -> Iterator[Problem]:
    for index, family in enumerate(manifest.families):
        for position, stem in enumerate(family.llama_models):
            if stem not in stems:
                severity: Severity = "error" if family.tier in (1, 2) else "warning"
                what = f"{family.family} covers {stem}, and the checkout has no src/models/{stem}.cpp"
                fix = "llama.cpp renamed or dropped it: correct llama_models, or make the row a tombstone"
                yield Problem(
                    "MG041", "families.json", f"/families/{index}/llama_models/{position}", what, fix, severity
                )


def _unknown_architectures(manifest: Manifest, architectures: frozenset[str]) -> Iterator[Problem]:
    for index, family in enumerate(manifest.families):
        if architectures and family.arch and family.arch not in architectures:
            severity: Severity = "error" if family.tier in (1, 2) else "warning"
            what = f"{family.family} has architecture {family.arch}, which this llama.cpp does not know"
            fix = "write what the file's header says; if it does say so, this pin cannot load the family"
            yield Problem("MG043", "families.json", f"/families/{index}/arch", what, fix, severity)


def _gate(manifest: Manifest, severity: Severity) -> Iterator[Problem]:
    for index, family in enumerate(manifest.families):
        if family.priority in ("p0", "p1") and not family.dropped and family.status in OPEN:
            what = f"{family.family} is {family.priority} and its status is {family.status}"
            fix = "certify a file of it, or lower its priority"
            yield Problem("MG042", "families.json", f"/families/{index}/status", what, fix, severity)


def _printable(text: str) -> str:
    """A checkout may hold any file name; nothing of it may reach a terminal or a workflow command as it is."""
    return ascii(text)[1:-1]
