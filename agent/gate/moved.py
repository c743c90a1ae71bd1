"""What may happen when the branch moved while its old tip was tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from agent.gate.repository import Entry

# what a verdict depends on: the pin and its patches, the manifests, and the programs that certify
CERTIFIED_INPUTS = (
    "manifests/",
    "third_party/llama.cpp/",
    ".github/workflows/",
    ".github/actions/",
    ".github/cache-version.txt",
    "actions/",
    "agent/",
    "matrixgen/",
    ".ci/",
    "pyproject.toml",
)


class MovedPolicy(StrEnum):
    """The two policies."""

    RETEST_IF_INPUTS_MOVED = "retest-if-certified-inputs-moved"
    RETEST_ALWAYS = "retest-always"


def changed_paths(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> tuple[str, ...]:
    """Paths whose content or mode differs between two listings, sorted; a rename counts on both sides."""
    return tuple(sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path)))


def certified_among(paths: Sequence[str], inputs: Sequence[str]) -> tuple[str, ...]:
    """Those of `paths` that are certified inputs. An input that ends in ``/`` is a folder."""
    return tuple(path for path in paths if any(_covers(entry, path) for entry in inputs))


def _covers(entry: str, path: str) -> bool:
    return path == entry.rstrip("/") or path.startswith(entry if entry.endswith("/") else f"{entry}/")
