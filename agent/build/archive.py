"""The archive that a build travels in: packed with recorded modes and links, verified before a byte of it is used.

A tar keeps modes and links, which an artifact's zip loses. Its bytes depend on nothing but its members.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from agent.binding.layout import Layout
from agent.build.record import LIBRARIES, RECORD, BuildRecord, Member
from agent.build.system import why_not_here
from agent.digests import sha256_of_file
from agent.errors import BuildInvalid, FileUnreadable

_MOST_RECORD_BYTES = 16 * 2**20
_CHUNK = 2**20
_AGAIN = "fetch or make the build again"


def members_of(folder: Path) -> tuple[Member, ...]:
    """Every file and link of a folder, but for its record.

    Raises:
        BuildInvalid: it holds a special file, or a link that does not lead to a file beside it.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name == RECORD or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            link = os.readlink(path)  # noqa: PTH115 - as it is written, which Path would tidy
            if "/" in link or not path.is_file():
                raise BuildInvalid(f"the link {name} leads to {link!r}: a build links only to files beside the link")
            found.append(Member(path=name, link=link))
        elif path.is_file():
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            found.append(Member(path=name, size=path.stat().st_size, sha256=sha256_of_file(path), mode=mode))
        else:
            raise BuildInvalid(f"{name} is neither a file nor a link: a build holds nothing else")
    return tuple(found)


def pack(folder: Path, record: BuildRecord, archive: Path) -> None:
    """Write `archive` from the members of `folder`; the record comes first. The old file stays until the new one is whole.

    Raises:
        BuildInvalid: a member is not what the record says.
        FileUnreadable: the archive cannot be written.
    """
    temporary = archive.with_name(f".{archive.name}.{os.getpid()}.tmp")
    try:
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
            data = record_bytes(record)
            tar.addfile(_entry(RECORD, len(data), 0o644), io.BytesIO(data))
            for member in record.members:
                if member.link is not None:
                    entry = _entry(member.path, 0, 0o777)
                    entry.type, entry.linkname = tarfile.SYMTYPE, member.link
                    tar.addfile(entry)
                else:
                    with (folder / member.path).open("rb") as file:
                        tar.addfile(_entry(member.path, member.size, member.mode), file)
        os.replace(temporary, archive)  # noqa: PTH105
    except OSError as error:
        raise FileUnreadable(
            f"{archive} cannot be written ({error.strerror or error}): check path and space"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def record_bytes(record: BuildRecord) -> bytes:
    """`build.json` as it is written."""
    return (json.dumps(record.to_json(), indent=1, sort_keys=False) + "\n").encode()


def unpack(archive: Path, folder: Path) -> BuildRecord:
    """Unpack a verified build into `folder`, which must not exist; on any error it is not there.

    Names, types and sizes are those of the record, whatever the tar says. Every file is hashed while it is written.

    Raises:
        BuildInvalid: the archive is cut short, holds what its record does not list, or differs from it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with tarfile.open(archive, "r:") as tar:
            record = _read_record(tar, archive)
            _extract(tar, record, temporary, archive)
        (temporary / RECORD).write_bytes(record_bytes(record))
        temporary.chmod(0o755)
        temporary.rename(folder)
    except tarfile.TarError as error:
        raise BuildInvalid(f"{archive.name} is cut short or no tar ({error}): {_AGAIN}") from error
    except OSError as error:
        raise FileUnreadable(
            f"{archive} cannot be unpacked ({error.strerror or error}): check path and space"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return record


def verify_folder(folder: Path) -> BuildRecord:
    """Read the record of an unpacked build and compare every file with it; what lies beside its libraries is not looked at.

    Raises:
        BuildInvalid: a file is missing, too many, or other than recorded.
    """
    path = folder / RECORD
    try:
        if path.is_symlink() or path.stat().st_size > _MOST_RECORD_BYTES:
            raise BuildInvalid(f"{path} is a link or too large for a record: {_AGAIN}")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BuildInvalid(f"{folder} holds no {RECORD} that can be read ({error}): {_AGAIN}") from error
    record = BuildRecord.from_json(data, folder.name)
    listed = {member.path: member for member in record.members}
    found = {
        member.path: member
        for member in members_of(folder)
        if member.path in listed or member.path.startswith(f"{LIBRARIES}/")
    }
    for name in sorted(listed.keys() | found.keys()):
        ours, theirs = found.get(name), listed.get(name)
        if ours != theirs:
            state = "is missing" if ours is None else "is not listed" if theirs is None else "is not what was built"
            raise BuildInvalid(f"{folder.name}: {name} {state}: {_AGAIN}")
    return record


@contextlib.contextmanager
def lend_build(build: Path) -> Iterator[tuple[Path, BuildRecord]]:
    """A verified build as a folder: an unpacked one as it is, an archive unpacked for as long as it is used.

    Raises:
        BuildInvalid: it is not what was built, or was built for another machine.
        FileUnreadable: it does not exist.
    """
    with tempfile.TemporaryDirectory(prefix="skippy-build-") as temporary:
        if build.is_dir():
            folder, record = build, verify_folder(build)
        elif build.is_file():
            folder = Path(temporary) / "build"
            record = unpack(build, folder)
        else:
            raise FileUnreadable(f"{build} does not exist: give the archive or the folder of a build")
        if why := why_not_here(record.system):
            raise BuildInvalid(f"{build.name}: {why}")
        yield folder.resolve(), record


@contextlib.contextmanager
def lend_libraries(build: Path) -> Iterator[tuple[Path, Layout | None]]:
    """The libraries of a build with their recorded layout; a folder without a record is taken as bare libraries."""
    if build.is_dir() and not (build / RECORD).exists():
        yield build.resolve(), None
        return
    with lend_build(build) as (folder, record):
        yield folder / LIBRARIES, record.layout


def _read_record(tar: tarfile.TarFile, archive: Path) -> BuildRecord:
    first = tar.next()
    if first is None or first.name != RECORD or not first.isreg() or first.size > _MOST_RECORD_BYTES:
        raise BuildInvalid(f"{archive.name} does not begin with {RECORD}: it is no build of this project; {_AGAIN}")
    file = tar.extractfile(first)
    data = file.read() if file else b""
    try:
        return BuildRecord.from_json(json.loads(data), archive.name)
    except (ValueError, RecursionError) as error:
        raise BuildInvalid(f"{archive.name}: {RECORD} is no JSON ({error}): {_AGAIN}") from error


def _extract(tar: tarfile.TarFile, record: BuildRecord, folder: Path, archive: Path) -> None:
    waiting = {member.path: member for member in record.members}
    links = []
    while (entry := tar.next()) is not None:
        member = waiting.pop(entry.name, None)
        if member is None:
            raise BuildInvalid(f"{archive.name} holds {entry.name!r}, which its record does not list once: {_AGAIN}")
        if member.link is not None:
            if not entry.issym() or entry.linkname != member.link:
                raise BuildInvalid(f"{archive.name}: {entry.name} is not the link that was recorded: {_AGAIN}")
            links.append(member)
            continue
        source = tar.extractfile(entry) if entry.isreg() and entry.size == member.size else None
        target = folder / member.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source is None or _copy(source, target) != member.sha256:
            raise BuildInvalid(f"{archive.name}: {entry.name} is not what was built: {_AGAIN}")
        target.chmod(member.mode)
    if waiting:
        raise BuildInvalid(f"{archive.name} lacks {min(waiting)}, which its record lists: {_AGAIN}")
    for member in links:  # last, so that nothing is ever written through one
        (folder / member.path).symlink_to(member.link or "")


def _copy(source: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("xb") as file:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def _entry(name: str, size: int, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry
