"""Is a package whole, and is it the model that it was made of? Every tensor owned once, every byte equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.digests import sha256_of_file
from agent.errors import AgentError, HeaderError, PackageInvalid
from agent.header.reader import Header
from agent.header.text import shown
from agent.package.container import ALIGNMENT_KEY, Advance, Piece, ignore, pieces_of, read_pairs, same_data
from agent.package.manifest import FILE_NAME, Package, Part
from agent.package.ownership import TOKEN_EMBEDDINGS, Owner, Shared, owner_of, words
from agent.package.parts import faults_of, strangers
from agent.package.stage import is_tied, trunk_layers
from agent.package.write import model_pairs

# keys that a writer of packages adds, and those of split files that it takes away
_OF_PACKAGES = ("split.", "skippy.")
_SHOWN = 5


@dataclass
class Validation:
    """What was found.

    Attributes:
        checks: how many things were compared with what they must be.
        problems: what is wrong, each with its place.
        notes: what is worth knowing though nothing is wrong.
        tensors: owned ones, each counted once.
        experts: of these, how many hold the experts of a layer.
        bytes_compared: with the source.
    """

    checks: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tensors: int = 0
    experts: int = 0
    bytes_compared: int = 0

    @property
    def valid(self) -> bool:
        """True if something was checked and nothing is wrong."""
        return self.checks > 0 and not self.problems

    def expect(self, condition: bool, problem: str) -> bool:
        """Count a check; keep the problem where it fails."""
        self.checks += 1
        if not condition:
            self.problems.append(problem)
        return condition


def validate(package: Package, source: Header | None = None, advance: Advance = ignore) -> Validation:
    """Check all of a package, and where the model that it was made of is here, compare every byte with it.

    Without `source`, what only the source could show stays open: a tensor that is missing from its layer.

    Raises:
        PackageInvalid: the source has tensors of unknown size.
    """
    found = Validation()
    held: dict[str, list[tuple[Owner, Piece]]] = {}
    readable = [part for part in package.parts.values() if _check_part(found, package, part, advance)]
    _check_architectures(found, package, readable)
    for part in readable:
        for name, piece in pieces_of(package.header(part)).items():
            held.setdefault(name, []).append((part.owner, piece))
    for projector in package.projectors:
        _check_all(found, list(faults_of(package, projector, advance)))
    owned = {name: _one_owner(found, name, holders) for name, holders in held.items()}
    found.tensors = len(owned)
    found.experts = sum("_exps." in name for name in owned)
    _check_model(found, package, owned)
    if source is None:
        found.notes.append("not compared with the model that it was made of: a tensor may be missing from its layer")
    else:
        _compare(found, package, owned, source, advance)
    found.notes += _unknown_files(package)
    return found


def _check_part(found: Validation, package: Package, part: Part, advance: Advance) -> bool:
    """True if the part can be looked into."""
    _check_all(found, list(faults_of(package, part, advance)))
    try:
        header = package.header(part)
        pieces_of(header)
    except (HeaderError, PackageInvalid) as error:
        if isinstance(error, PackageInvalid):
            found.problems.append(str(error))
        return False  # what is wrong with it has been said
    found.problems += strangers(part, header)
    return True


def _check_architectures(found: Validation, package: Package, readable: Sequence[Part]) -> None:
    """All parts are of the model that the metadata part describes."""
    metadata = package.parts[Shared.METADATA]
    if metadata not in readable:
        return  # what is wrong with it has been said
    said = package.header(metadata).architecture
    for part in readable:
        mine = package.header(part).architecture
        found.expect(mine == said, f"{words(part.owner)} is of a {shown(mine)}, shared metadata of a {shown(said)}")


def _check_all(found: Validation, faults: list[str]) -> None:
    found.checks += 1
    found.problems += faults


def _one_owner(found: Validation, name: str, holders: list[tuple[Owner, Piece]]) -> Piece:
    """The tensor where its owner has it. Only what the metadata part owns may be repeated, with the same contents."""
    rightful = owner_of(holders[0][1].tensor)
    mine = [piece for owner, piece in holders if owner == rightful]
    found.expect(bool(mine), f"{name} is not in {words(rightful)}, which owns it")
    first = mine[0] if mine else holders[0][1]
    others = [(owner, piece) for owner, piece in holders if piece is not first]
    for owner, piece in others:
        if rightful != Shared.METADATA:
            found.expect(False, f"{name} is there twice: in {words(rightful)} and in {words(owner)}")
            continue
        same = (piece.tensor.type, piece.tensor.shape) == (first.tensor.type, first.tensor.shape)
        found.expect(same and same_data(first, piece), f"{words(owner)} repeats {name} with other contents")
    return first


def _check_model(found: Validation, package: Package, owned: Mapping[str, Piece]) -> None:
    metadata = package.parts[Shared.METADATA]
    try:
        header = package.header(metadata)
        trunk, tied = trunk_layers(package), is_tied(package)
        width = header.get_uint(header.key("embedding_length"))
    except AgentError as error:
        if not isinstance(error, HeaderError):  # those have been said
            found.problems.append(str(error))
        return
    found.expect(TOKEN_EMBEDDINGS in owned, f"{TOKEN_EMBEDDINGS} is missing: no stage could begin with it")
    if package.activation_width is not None:
        found.expect(
            package.activation_width == width,
            f"activation_width is {package.activation_width}, embedding_length of the metadata part is {width}",
        )
    for layer in range(package.layer_count):
        found.expect(
            any(piece.tensor.layer == layer for piece in owned.values()), f"layer {layer} holds no tensor of its own"
        )
    if tied:
        found.notes.append("no output matrix: the last stage takes the token embeddings too")
    if package.layer_count > trunk:
        found.notes.append(
            f"layers {trunk} to {package.layer_count - 1} are prediction (MTP) heads: they go with layer {trunk - 1}"
        )


def _compare(found: Validation, package: Package, owned: Mapping[str, Piece], source: Header, advance: Advance) -> None:
    whole = pieces_of(source)
    missing = [name for name in whole if name not in owned]
    found.expect(not missing, f"{len(missing)} of {len(whole)} tensors are missing: {_some(missing)}")
    unknown = [name for name in owned if name not in whole]
    found.expect(not unknown, f"{len(unknown)} tensors are not in the model: {_some(unknown)}")
    for name, piece in whole.items():
        if name not in owned:
            continue
        mine = owned[name]
        kind, shape = mine.tensor.type, mine.tensor.shape
        if found.expect(
            (kind, shape) == (piece.tensor.type, piece.tensor.shape),
            f"{name} is of type {kind} and shape {shape}, in the model of {piece.tensor.type} and {piece.tensor.shape}",
        ):
            found.expect(same_data(mine, piece), f"{name} holds other bytes than in the model")
            found.bytes_compared += piece.size
            advance(piece.size)
    _compare_metadata(found, package, source)
    _compare_source(found, package, source)


def _compare_metadata(found: Validation, package: Package, source: Header) -> None:
    metadata = package.parts[Shared.METADATA]
    try:
        package.header(metadata)
        mine = read_pairs(package.place(metadata))
    except HeaderError:
        return  # what is wrong with it has been said
    theirs = model_pairs(source)
    for key in sorted(mine.keys() | theirs.keys()):
        if key.startswith(_OF_PACKAGES) or (key == ALIGNMENT_KEY and key not in theirs):
            continue
        found.expect(
            mine.get(key) == theirs.get(key),
            f"the key {shown(key)} of the metadata part is not that of the model",
        )


def _compare_source(found: Validation, package: Package, source: Header) -> None:
    said = {str(entry["path"]).rpartition("/")[2]: entry.get("sha256") for entry in package.source.get("files", ())}
    first = source.shards[0].path
    said.setdefault(first.name, None)
    for shard in source.shards:
        expected = package.source["sha256"] if shard.path == first else said.get(shard.path.name)
        if expected:
            digest = sha256_of_file(shard.path)
            found.expect(
                digest == str(expected).lower(),
                f"the package was made of another file than {shard.path.name}: its sha256 is {digest}",
            )


def _unknown_files(package: Package) -> list[str]:
    known = {FILE_NAME, *(part.path for part in package.files)}
    present = sorted(
        path.relative_to(package.folder).as_posix() for path in package.folder.rglob("*") if not path.is_dir()
    )
    unknown = [path for path in present if path not in known]
    return (
        [f"{len(unknown)} files are not of the package: {_some([shown(path) for path in unknown])}"] if unknown else []
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
