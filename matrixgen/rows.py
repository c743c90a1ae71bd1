"""A new row of families.json from what a maintainer types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from matrixgen.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

CACHES = {
    "recurrent": "KvRecurrent",
    "hybrid": "KvRecurrent",
    "encoder": "disabled",
    "package": "package-local ResidentKv",
}


def new_row(
    family: str,
    *,
    arch: str,
    shape: str,
    tier: str,
    priority: str,
    status: str,
    repo: str | None,
    revision: str | None,
    selector: str,
    files: Sequence[str],
    cache: str | None,
    models: Sequence[str],
    reason: str,
    notes: str,
) -> dict[str, Any]:
    """The row; wire types other than f32 and the exact state are untested. Only the form of files is checked here.

    Raises InvalidValue for a file that is not PATH or PATH:SIZE:SHA256, or for files without a repository.
    """
    if repo is None and (files or revision):
        raise InvalidValue("--file and --revision are of a repository; give it with --repo OWNER/NAME")
    artifact = None
    if repo is not None:
        artifact = {"repo": repo, "revision": revision, "selector": selector, "files": dict(map(_file, files))}
    return {
        "family": family,
        "tier": None if tier == "null" else int(tier),
        "arch": arch,
        "shape": shape,
        "priority": priority,
        "status": status,
        "artifact": artifact,
        "projector": None,
        "package": None,
        "wire": {"f32": "required", "f16": "untested", "q8": "untested"},
        "cache": CACHES.get(shape, "ResidentKv") if cache is None else cache,
        "exact_state": "not-applicable" if shape == "encoder" else "untested",
        "llama_models": list(models) or [family],
        "reason": reason,
        "notes": notes,
    }


def _file(text: str) -> tuple[str, dict[str, Any]]:
    if ":" not in text:
        return text, {"size": None, "sha256": None}
    match = re.fullmatch(r"([^:]+):([1-9][0-9]{0,15}):([0-9a-f]{64})", text)
    if match is None:
        raise InvalidValue(f"--file {text[:80]!r} must be PATH, or PATH:SIZE:SHA256 with bytes and 64 hex digits")
    return match[1], {"size": int(match[2]), "sha256": match[3]}
