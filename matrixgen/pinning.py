"""Set the pin: pin.json from values, or from the layout of the product's repository."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from matrixgen.errors import InvalidValue, ManifestInvalid, ManifestUnreadable
from matrixgen.files import write_atomically
from matrixgen.pin import Patch
from matrixgen.source import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matrixgen.content import Manifest
    from matrixgen.pin import Pin

_COMMIT = re.compile(r"[0-9a-f]{40}")
MAX_PATCH = 64 * 2**20


def read_upstream(folder: Path) -> tuple[str, tuple[Patch, ...]]:
    """(commit, patches) of `folder`, which holds upstream.txt and maybe patches/*.patch; patches in the order of `git am`.

    Raises InvalidValue.
    """
    return read_commit(folder / "upstream.txt"), read_patches(folder / "patches") if (
        folder / "patches"
    ).is_dir() else ()


def read_commit(path: Path) -> str:
    """The commit in upstream.txt. A tag or a short id is refused: a shallow clone cannot resolve them. Raises InvalidValue."""
    text = _text(path)
    if not _COMMIT.fullmatch(text):
        raise InvalidValue(f"{path} holds {ascii(text)[:60]}, not a full commit id (40 hex digits)")
    return text


def read_cache_version(path: Path) -> str:
    """The word in cache-version.txt. Raises InvalidValue."""
    return _text(path)


def read_patches(folder: Path) -> tuple[Patch, ...]:
    """Name and SHA-256 of the bytes of every patch, sorted by name. Raises InvalidValue for an empty folder."""
    try:
        files = sorted((path for path in folder.glob("*.patch") if path.is_file()), key=lambda path: path.name)
        if not files:
            raise InvalidValue(f"{folder} has no .patch file; leave the option out if there is no patch queue")
        if large := [path.name for path in files if path.stat().st_size > MAX_PATCH]:
            raise InvalidValue(f"{folder / large[0]} has more than {MAX_PATCH} bytes, which is no patch")
        return tuple(Patch(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files)
    except OSError as error:
        raise InvalidValue(f"cannot read {folder}: {error.strerror}") from None


def set_pin(
    root: Path,
    *,
    commit: str | None = None,
    version: str | None = None,
    patches: Sequence[Patch] | None = None,
    cache_version: str | None = None,
    toolchain_epoch: str | None = None,
) -> tuple[Pin, Pin]:
    """Write pin.json with what is given; (pin before, pin after). A new commit without a version drops the old version.

    The result is checked like any other manifest before a byte is written. Raises ManifestInvalid, CannotWrite.
    """
    from matrixgen.manifest import check_manifest, load_manifest

    before = load_manifest(root).pin
    data: dict[str, Any] = before.to_json()
    if commit is not None and commit != before.commit:
        data |= {"commit": commit, "version": None}
    given = {"version": version, "cache_version": cache_version, "toolchain_epoch": toolchain_epoch}
    data |= {key: value for key, value in given.items() if value is not None}
    if patches is not None:
        data["patches"] = [patch._asdict() for patch in patches]
    text = json.dumps(data, indent=2) + "\n"
    findings, after = check_manifest(root, replaced={"pin": text})
    if after is None:
        raise ManifestInvalid(findings, root)
    if after.pin != before:
        write_atomically(root / "pin.json", text)
    return before, after.pin


def differences(manifest: Manifest, commit: str, patches: Sequence[Patch]) -> list[str]:
    """How the product's layout differs from pin.json; empty when they agree."""
    pin = manifest.pin
    found = [] if pin.commit == commit else [f"commit: pin.json has {pin.commit}, upstream.txt {commit}"]
    known, there = ({patch.name: patch.sha256 for patch in queue} for queue in (pin.patches, patches))
    for name in sorted(known.keys() | there.keys()):
        if known.get(name) != there.get(name):
            word = (
                "is not in the folder"
                if name not in there
                else "is not in pin.json"
                if name not in known
                else "was edited"
            )
            found.append(f"patch {name} {word}")
    return found


def _text(path: Path) -> str:
    try:
        return read_text(path).strip()
    except ManifestUnreadable as error:
        raise InvalidValue(f"{error.problem}; give the folder that holds it") from None
