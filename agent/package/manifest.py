"""`model-package.json`: read, checked as a whole, and turned into a `Package`."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from agent.errors import PackageInvalid
from agent.header.reader import Header, read_header
from agent.header.text import shown
from agent.package.ownership import Owner, Shared, words

FILE_NAME = "model-package.json"
LATER_FILE_NAME = "skippy-model-package.json"
SCHEMA_FILE = Path(__file__).with_name("package.schema.json")

_MAX_BYTES = 64 * 2**20
_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file of a package, as the manifest describes it.

    Attributes:
        owner: what it holds; a projector belongs to the embeddings, since the first stage takes both.
        path: relative to the package, with slashes.
        tensor_count, tensor_bytes: of its tensors, without padding.
        artifact_bytes: size of the file.
        sha256: of the file, lower-case hex.
    """

    owner: Owner
    path: str
    tensor_count: int
    tensor_bytes: int
    artifact_bytes: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it, without its owner."""
        return {
            "path": self.path,
            "tensor_count": self.tensor_count,
            "tensor_bytes": self.tensor_bytes,
            "artifact_bytes": self.artifact_bytes,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, kw_only=True)
class Package:
    """A layer package, or as much of one as is here.

    Attributes:
        folder: where its parts lie.
        sha256: of the manifest.
        model_id: as the manifest says.
        layer_count: layers, those of prediction (MTP) heads included.
        activation_width: elements of a hidden state; None where the manifest does not say.
        abi_version: of the product's library that the package is for.
        source: the manifest's `source_model`.
        parts: by what they own, complete: every layer once, and the three shared ones.
        projectors: multimodal projectors; parts of the first stage.
    """

    folder: Path
    sha256: str
    model_id: str
    layer_count: int
    activation_width: int | None
    abi_version: str
    source: Mapping[str, Any]
    parts: Mapping[Owner, Part]
    projectors: tuple[Part, ...] = ()
    _headers: dict[str, Header] = field(default_factory=dict, compare=False, repr=False)

    @property
    def files(self) -> tuple[Part, ...]:
        """All parts and projectors."""
        return (*self.parts.values(), *self.projectors)

    def place(self, part: Part) -> Path:
        """Where a part lies."""
        return self.folder / PurePosixPath(part.path)

    def header(self, part: Part) -> Header:
        """The header of a part, read once.

        Raises:
            HeaderError: it is missing, or no sound GGUF.
        """
        if part.path not in self._headers:
            self._headers[part.path] = read_header(self.place(part))
        return self._headers[part.path]


def read_package(folder: Path) -> Package:
    """Read the manifest of a package, given its folder or the manifest itself. No part is opened.

    Raises:
        PackageInvalid: there is none, it is of a later format, or it is not what it should be; all faults are named.
    """
    path = folder if folder.name == FILE_NAME else folder / FILE_NAME
    try:
        if not path.is_file():
            raise PackageInvalid(_absent(folder))
        if path.stat().st_size > _MAX_BYTES:
            raise PackageInvalid(f"{path} has {path.stat().st_size} bytes; no manifest needs more than {_MAX_BYTES}")
        data = path.read_bytes()
    except OSError as error:
        raise PackageInvalid(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    return parse_manifest(data, path.parent)


def parse_manifest(data: bytes, folder: Path) -> Package:
    """The package that a manifest describes.

    Raises:
        PackageInvalid: as `read_package`.
    """
    what = folder / FILE_NAME
    values = _parse(data, what)
    faults = list(_violations(values)) or list(_contradictions(values))
    if faults:
        more = f"\n  and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise PackageInvalid(f"{what} is no manifest of a layer package:\n  " + "\n  ".join(faults[:_SHOWN]) + more)
    parts: dict[Owner, Part] = {shared: _part(shared, values["shared"][shared]) for shared in Shared}
    parts |= {layer["layer_index"]: _part(layer["layer_index"], layer) for layer in _in_order(values["layers"])}
    return Package(
        folder=folder,
        sha256=hashlib.sha256(data).hexdigest(),
        model_id=values["model_id"],
        layer_count=values["layer_count"],
        activation_width=values.get("activation_width"),
        abi_version=values["skippy_abi_version"],
        source=values["source_model"],
        parts=parts,
        projectors=tuple(_part(Shared.EMBEDDINGS, entry) for entry in values.get("projectors", ())),
    )


def is_safe_path(path: str) -> bool:
    """True if a path stays inside of the package on every system: relative, plain, without `..`."""
    pure = PurePosixPath(path)
    return (
        bool(pure.parts)
        and str(pure) == path
        and not pure.is_absolute()
        and ".." not in pure.parts
        and "\\" not in path
        and ":" not in path
        and path.isprintable()
    )


def _absent(folder: Path) -> str:
    if (folder / LATER_FILE_NAME).is_file():
        return (
            f"{folder} holds {LATER_FILE_NAME}, a later format of packages that this skippy-agent does not read: "
            f"package the model in version 1 ({FILE_NAME})"
        )
    return f"{folder} holds no {FILE_NAME}: name the folder of a layer package"


def _parse(data: bytes, what: Path) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        if twice:
            raise ValueError(f"the key {shown(twice[0])} is there twice")
        return dict(pairs)

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise PackageInvalid(f"{what} is no JSON that can be used ({error}): fetch it again") from None


@functools.cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def _violations(values: Any) -> Iterator[str]:
    for error in sorted(_validator().iter_errors(values), key=lambda error: error.json_path):
        yield f"{error.json_path}: {shown(error.message, 200)}"


def _contradictions(values: Mapping[str, Any]) -> Iterator[str]:
    """What a schema cannot say: safe and distinct paths, every layer once, sizes that can be."""
    count = values["layer_count"]
    seen = Counter(layer["layer_index"] for layer in values["layers"])
    for index in sorted(seen.keys() | set(range(count))):
        if index >= count:
            yield f"layer {index} is there, but layer_count is {count}"
        elif seen[index] != 1:
            yield f"layer {index} is {'missing' if not seen[index] else f'there {seen[index]} times'}"
    named = [(words(shared), values["shared"][shared]) for shared in Shared]
    named += [(words(layer["layer_index"]), layer) for layer in values["layers"]]
    named += [(f"projector {number}", entry) for number, entry in enumerate(values.get("projectors", ()))]
    owners: dict[str, str] = {FILE_NAME: "the manifest"}
    for name, entry in named:
        path = entry["path"]
        if not is_safe_path(path):
            yield f"{name}: the path {shown(path)!r} is not a plain relative one, so it could lead out of the package"
        # two names that differ in case only are one file on some systems
        other = owners.setdefault(path.casefold(), name)
        if other != name:
            yield f"{name}: its file {shown(path)} is that of {other} too"
        if bool(entry["tensor_count"]) != bool(entry["tensor_bytes"]):
            yield f"{name}: {entry['tensor_count']} tensors cannot have {entry['tensor_bytes']} bytes"


def _in_order(layers: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(layers, key=lambda layer: int(layer["layer_index"]))


def _part(owner: Owner, entry: Mapping[str, Any]) -> Part:
    return Part(
        owner=owner,
        path=entry["path"],
        tensor_count=entry["tensor_count"],
        tensor_bytes=entry["tensor_bytes"],
        artifact_bytes=entry["artifact_bytes"],
        sha256=entry["sha256"].lower(),
    )
