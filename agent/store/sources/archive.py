"""ZIP archives that carry a file: read where they lie, never unpacked, so no member can land anywhere."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import zipfile
import zlib
from typing import IO, TYPE_CHECKING

from agent.errors import ArtifactCorrupt, StoreError
from agent.store.sources.source import Stream
from agent.store.space import disk_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from agent.store.patience import Patience
    from agent.store.wanted import Sought, Wanted

_CHUNK = 2**20
_SPOOL_TRIES = 3


@contextlib.contextmanager
def spool(
    connect: Callable[[int, int | None], AbstractContextManager[Stream]],
    where: str,
    digest: str | None,
    folder: Path | None,
    patience: Patience,
) -> Iterator[IO[bytes]]:
    """Fetch an archive into a file without a name, which is gone when the block ends or the process dies.

    Args:
        connect: `Remote.open` of the archive.
        where: for messages.
        digest: `sha256:<hex>` as the other side says, or None.
        folder: on the disk that is to hold it.
        patience: how often to try.

    Raises:
        ArtifactCorrupt: it was cut short or changed on its way, three times.
        StoreError: by what else went wrong.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    failure: StoreError = ArtifactCorrupt(where)
    for attempt in range(1, _SPOOL_TRIES + 1):
        with disk_errors(folder or where), tempfile.TemporaryFile(dir=folder) as file:  # type: ignore[arg-type]
            try:
                _fill(file, connect, where, digest)
            except StoreError as error:
                failure = error
                if not error.transient:
                    raise
                patience.sleep(patience.delay(min(attempt, patience.attempts - 1) or 1, error) or 0)
                continue
            yield file
            return
    raise failure


def _fill(
    file: IO[bytes],
    connect: Callable[[int, int | None], AbstractContextManager[Stream]],
    where: str,
    digest: str | None,
) -> None:
    seen, size = hashlib.sha256(), 0
    with connect(0, None) as stream:
        for chunk in stream.chunks:
            file.write(chunk)
            seen.update(chunk)
            size += len(chunk)
    if stream.total is not None and size != stream.total:
        raise ArtifactCorrupt(f"{where} ended after {size} of {stream.total} bytes")
    if digest and digest.removeprefix("sha256:") != seen.hexdigest():
        raise ArtifactCorrupt(f"{where} has sha256 {seen.hexdigest()}, GitHub says {digest.removeprefix('sha256:')}")


@contextlib.contextmanager
def member_stream(archive: IO[bytes], wanted: Wanted | Sought, where: str, start: int) -> Iterator[Stream]:
    """The member of exactly the wanted path, else of the wanted name at the top; empty where there is none.

    Raises:
        ArtifactCorrupt: no ZIP archive, a damaged one, or one with the member twice.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [info for info in opened.infolist() if info.filename in (wanted.path, wanted.name)]
            if len({info.filename for info in names}) != len(names):
                raise ArtifactCorrupt(f"{where} holds {wanted.name} twice")
            names.sort(key=lambda info: info.filename != wanted.path)
            if not names or not wanted.fits(names[0].file_size):
                yield Stream(start=0, total=names[0].file_size if names else None, chunks=iter(()))
                return
            with opened.open(names[0]) as member:
                member.seek(start)
                yield Stream(start=start, total=names[0].file_size, chunks=_chunks(member, where))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ArtifactCorrupt(f"{where} is no sound ZIP archive: {error}") from None


def _chunks(member: IO[bytes], where: str) -> Iterator[bytes]:
    try:
        while chunk := member.read(_CHUNK):
            yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ArtifactCorrupt(f"{where} is damaged: {error}") from None
