"""Is a part what the manifest says? Its size first, which costs nothing, then every byte, then its tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from agent.errors import HeaderError
from agent.header.reader import Header
from agent.header.text import shown
from agent.package.container import Advance
from agent.package.manifest import Package, Part
from agent.package.ownership import Shared, owner_of, words

_BLOCK = 4 * 2**20


def faults_of(package: Package, part: Part, advance: Advance) -> Iterator[str]:
    """What is wrong with a part; nothing where it is as the manifest says."""
    path = package.place(part)
    what = f"{words(part.owner)} ({shown(part.path)})"
    try:
        if not path.is_file():
            yield f"{what} is missing"
            return
        size = path.stat().st_size
        if size != part.artifact_bytes:
            yield f"{what} has {size} bytes, the manifest says {part.artifact_bytes}"
            return
        found = _sha256(package, part, advance)
    except OSError as error:
        yield f"{what} cannot be read ({error.strerror})"
        return
    if found != part.sha256:
        yield f"{what} has sha256 {found}, the manifest says {part.sha256}"
    try:
        header = package.header(part)
    except HeaderError as error:
        yield f"{what} is no sound GGUF: {error.verdict}: {error.detail}"
        return
    yield from _wrong_counts(part, header, what)


def strangers(part: Part, header: Header) -> Iterator[str]:
    """Names of tensors that another part owns. What belongs to the metadata part may be repeated in every part."""
    for tensor in header.tensors:
        owner = owner_of(tensor)
        if owner not in (part.owner, Shared.METADATA):
            yield f"{words(part.owner)} holds {tensor.name}, which {words(owner)} owns"


def _wrong_counts(part: Part, header: Header, what: str) -> Iterator[str]:
    if len(header.tensors) != part.tensor_count:
        yield f"{what} holds {len(header.tensors)} tensors, the manifest says {part.tensor_count}"
    total = sum(tensor.n_bytes or 0 for tensor in header.tensors)
    if total != part.tensor_bytes:
        yield f"{what} holds {total} bytes of tensors, the manifest says {part.tensor_bytes}"


def _sha256(package: Package, part: Part, advance: Advance) -> str:
    digest = hashlib.sha256()
    with package.place(part).open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()
