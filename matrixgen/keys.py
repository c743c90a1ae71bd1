"""Cache keys and artifact names from named parts.

A key is readable text, then the SHA-256 of all its parts, then a terminator that no label may contain. So no key is
ever a prefix of another, which matters because GitHub's cache matches keys by prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from matrixgen.canonical import canonical_json, sha256_hex
from matrixgen.errors import InvalidValue
from matrixgen.limits import MAX_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrixgen.content import Manifest
    from matrixgen.family import FileDigest
    from matrixgen.leg import Plan
    from matrixgen.pin import Pin
    from matrixgen.runner import RunnerClass

TERMINATOR = "~"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Key(NamedTuple):
    """`text` is what goes to GitHub; `parts` is everything it stands for, in order."""

    text: str
    parts: tuple[tuple[str, str], ...]

    @property
    def artifact_name(self) -> str:
        """The key as the name of a GitHub artifact. Names are compared whole, so they need no terminator."""
        return self.text.removesuffix(TERMINATOR)


def make_key(label: str, parts: Sequence[tuple[str, str]]) -> Key:
    """`<label>-<sha256 of the parts>~`, at most 512 characters, without commas.

    The label is made of letters, digits and `._-`. A label that is too long is cut and marked by its own hash.
    """
    if not label or not _ALLOWED.issuperset(label):
        raise InvalidValue(
            f"key label {label!r} may only hold letters, digits and . _ -; change the name or the prefix"
        )
    digest = sha256_hex(canonical_json([list(part) for part in parts]))
    room = MAX_KEY - len(digest) - len(TERMINATOR) - 1
    if len(label) > room:
        label = f"{label[: room - 17]}-{sha256_hex(label)[:16]}"
    return Key(text=f"{label}-{digest}{TERMINATOR}", parts=tuple(parts))


def build_key(pin: Pin, runner: RunnerClass, *, prefix: str) -> Key:
    """Identity of prebuilt binaries: source, pin, ordered patches, toolchain, backend, system, cache version."""
    parts = [
        ("kind", "build"),
        ("source", f"{pin.binding.package}=={pin.binding.version}"),
        ("pin", pin.commit),
        *((f"patch {index}", f"{patch.name} {patch.sha256}") for index, patch in enumerate(pin.patches, 1)),
        ("toolchain", pin.toolchain_epoch),
        ("backend", runner.backend),
        ("os", runner.os),
        ("arch", runner.arch),
        ("cache version", pin.cache_version),
    ]
    return make_key(f"{prefix}-{runner.os}-{runner.arch}-skippy-ci-build-{runner.backend}", parts)


def model_key(family: str, files: Sequence[FileDigest], *, os: str, cache_version: str, prefix: str) -> Key:
    """Identity of a set of model files: their paths, sizes and SHA-256, whatever the order in which they are named."""
    parts = [
        ("kind", "models"),
        ("set", family),
        ("os", os),
        ("cache version", cache_version),
        *((f"file {file.path}", f"{file.size} {file.sha256}") for file in sorted(files, key=lambda file: file.path)),
    ]
    return make_key(f"{prefix}-{os}-skippy-ci-{family}-models", parts)


def corpus_key(name: str, files: Mapping[str, str], *, os: str, cache_version: str, prefix: str) -> Key:
    """Identity of a set of text files: `files` maps path to SHA-256. Separators are written as `/` on every machine."""
    plain = {path.replace("\\", "/"): sha256 for path, sha256 in files.items()}
    parts = [
        ("kind", "corpus"),
        ("set", name),
        ("os", os),
        ("cache version", cache_version),
        *((f"file {path}", plain[path]) for path in sorted(plain)),
    ]
    return make_key(f"{prefix}-{os}-skippy-ci-{name}-corpus", parts)


def plan_keys(manifest: Manifest, plan: Plan) -> list[tuple[str, Key]]:
    """(what, key) of every build and of every set of weights of a plan, with the parts of each key."""
    runners = {runner.name: runner for runner in manifest.runners}
    prefix = manifest.caches.prefix
    keys = [
        (f"build {build.backend} {build.os}-{build.arch}", build_key(plan.pin, runners[build.runner], prefix=prefix))
        for build in plan.builds
    ]
    version = plan.pin.cache_version
    keys += [
        (
            leg.id,
            model_key(leg.family.family, leg.files, os=runners[leg.runner].os, cache_version=version, prefix=prefix),
        )
        for leg in plan.legs
        if leg.files
    ]
    return keys
