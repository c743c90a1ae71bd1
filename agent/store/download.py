"""One file from one source, into its partial file: continued where it stopped, hashed on its way, never believed."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from agent.errors import CutShort, HeaderError, NoSpace, RangeRefused, StoreError, WrongBytes
from agent.header.formats import HEAD, check_format
from agent.header.source import BytesSource
from agent.header.verdicts import Verdict
from agent.store.ranges import open_from
from agent.store.space import disk_errors

if TYPE_CHECKING:
    from agent.store.locks import Held
    from agent.store.patience import Patience
    from agent.store.progress import Progress
    from agent.store.sources.source import Remote
    from agent.store.wanted import Wanted

_BLOCK = 2**20
_TEXTS = {Verdict.HTML_PAGE, Verdict.XML_ERROR, Verdict.JSON_DOCUMENT, Verdict.LFS_POINTER}
_HASH_AHEAD = 8  # blocks that may wait for the hash


def size_of(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def name_of(head: bytes) -> str | None:
    """What text stands in place of a model, with the next step; None where it is none that is known."""
    try:
        check_format(BytesSource(head[:HEAD]))
    except HeaderError as error:
        if error.verdict in _TEXTS:
            return f"{error.verdict}: {error.detail}. {error.next_step}"
    return None


class Download:
    """The partial file of one digest. Its caller holds the exclusive lock of that digest."""

    def __init__(self, wanted: Wanted, partial: Path, held: Held, progress: Progress, patience: Patience) -> None:
        self._wanted, self.partial = wanted, partial
        self._held, self._progress, self._patience = held, progress, patience
        self._digest = hashlib.sha256()

    def discard(self) -> None:
        """Remove what is there."""
        with disk_errors(self.partial):
            self.partial.unlink(missing_ok=True)

    def run(self, offer: Remote, source: str) -> None:
        """Fetch what is missing and verify the whole.

        Raises:
            WrongBytes: the source gave something else; nothing is left of it.
            NoSpace: nothing is left either.
            StoreError: the transfer failed; what is left of it can be continued, unless the error says `restart`.
        """
        try:
            with disk_errors(self.partial):
                self.partial.parent.mkdir(parents=True, exist_ok=True)
                continued = self._transfer(offer, source)
                found = self._digest.hexdigest()
                if found != self._wanted.sha256 and continued:
                    # the beginning may be another source's, or that of a crash: what this source says is not known yet
                    self._progress.note(
                        f"{source}: the continued {self._wanted.name} does not verify; it is fetched anew"
                    )
                    self.discard()
                    self._transfer(offer, source)
                    found = self._digest.hexdigest()
            if found != self._wanted.sha256:
                raise WrongBytes(
                    f"{source} gave sha256 {found} for {self._wanted}, the plan says {self._wanted.sha256}: "
                    "it was not kept. Mend or drop that source"
                )
        except StoreError as error:
            if error.restart or isinstance(error, WrongBytes | NoSpace):
                self.discard()
            raise
        finally:
            self._progress.end(self._wanted.path)

    def _transfer(self, offer: Remote, source: str) -> bool:
        """Bring the file to its full size. Returns whether it had a beginning."""
        with self.partial.open("ab") as file, _HashAhead() as ahead:
            self._digest = ahead.digest
            offset = self._rehash(ahead)
            if offset > self._wanted.size:
                offset = self._restart(file, ahead)
            continued = offset > 0
            if offset == self._wanted.size:
                return continued
            self._progress.begin(self._wanted.path, f"from {source}", offset, self._wanted.size)
            with open_from(offer, offset, self._wanted.size, self._patience) as stream:
                if stream.start not in (0, offset):
                    raise RangeRefused(f"{source} was asked for byte {offset} onwards and began at {stream.start}")
                if stream.total not in (None, self._wanted.size) and offset:
                    raise WrongBytes(self._other_size(source, stream.total))
                if stream.start != offset:  # the other side cannot begin in the middle
                    continued = False
                    offset = self._restart(file, ahead)
                    self._progress.begin(self._wanted.path, f"from {source}", 0, self._wanted.size)
                for chunk in _joined(stream.chunks):
                    if offset == 0:
                        self._check_head(chunk, source, stream.total)
                    offset += len(chunk)
                    if offset > self._wanted.size:
                        raise WrongBytes(self._other_size(source, stream.total))
                    file.write(chunk)
                    ahead.put(chunk)
                    self._held.beat()
                    self._progress.advance(self._wanted.path, len(chunk))
            if offset < self._wanted.size:
                if stream.total == offset:
                    raise WrongBytes(self._other_size(source, stream.total))
                raise CutShort(f"{source} ended {self._wanted.path} after {offset} of {self._wanted.size} bytes")
        return continued

    def _rehash(self, ahead: _HashAhead) -> int:
        done = size_of(self.partial)
        if not done:
            return 0
        self._progress.begin(self._wanted.path, "hash what is there", 0, done)
        with self.partial.open("rb") as file:
            while block := file.read(_BLOCK):
                ahead.put(block)
                self._held.beat()
                self._progress.advance(self._wanted.path, len(block))
        return done

    def _restart(self, file: IO[bytes], ahead: _HashAhead) -> int:
        file.truncate(0)
        ahead.restart()
        self._digest = ahead.digest
        return 0

    def _check_head(self, head: bytes, source: str, total: int | None) -> None:
        """Name a page, an error or a pointer that stands in place of a model at its first bytes.

        What has the right size is not judged: the sha256 is of the plan's file, whatever that is.
        """
        if total == self._wanted.size or (total is None and not self._wanted.path.endswith(".gguf")):
            return
        name = name_of(head)
        if name:
            raise WrongBytes(f"{source} gave something else for {self._wanted}: {name}")
        if total is not None:
            raise WrongBytes(self._other_size(source, total))

    def _other_size(self, source: str, size: int | None) -> str:
        there = "more" if size is None else str(size)
        return f"{source} has {there} bytes for {self._wanted}, the plan says {self._wanted.size}: mend or drop that source"


def _joined(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of about one MiB, and of what there is where a failure ends them."""
    parts: list[bytes] = []
    size, since = 0, time.monotonic()
    try:
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size >= _BLOCK or (size >= HEAD and time.monotonic() - since > 1):
                yield b"".join(parts)
                parts, size, since = [], 0, time.monotonic()
    except StoreError:
        if parts:
            yield b"".join(parts)
        raise
    if parts:
        yield b"".join(parts)


class _HashAhead:
    """A SHA-256 that runs in a thread of its own beside the network and the disk; it waits for the last block on leaving."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._pending: deque[Future[None]] = deque()

    def put(self, block: bytes) -> None:
        """Add a block, in order."""
        if len(self._pending) >= _HASH_AHEAD:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self.digest.update, block))

    def restart(self) -> None:
        """Begin anew."""
        self._pending.clear()
        self.digest = hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True)
