"""Reads a small file that no digest is known of, by its name, from the sources that know files by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from agent.errors import CutShort, FetchFailed, Offline, StoreError
from agent.store.local import Said
from agent.store.sources.folder import FolderSource
from agent.store.sources.github import ReleaseSource, RunSource
from agent.store.sources.s3 import S3Source
from agent.store.sources.source import InPlace, Offer
from agent.store.watchdog import watched

if TYPE_CHECKING:
    from agent.store.patience import Patience
    from agent.store.store import Store
    from agent.store.wanted import Sought

T = TypeVar("T")
NamingSource = FolderSource | ReleaseSource | RunSource | S3Source


def naming_sources(store: Store) -> tuple[NamingSource, ...]:
    """The sources of `store` that know files by name; a hub knows them by repository."""
    return tuple(source for source in store.sources if isinstance(source, NamingSource))


def read_named(store: Store, sought: Sought, parse: Callable[[bytes], T]) -> T:
    """What `parse` makes of the first file of that name that it takes.

    Args:
        store: whose sources are asked, in their order.
        sought: the name.
        parse: raises ValueError for what is something else.

    Raises:
        FetchFailed: no source has one; the message says what each answered.
    """
    said = Said(lines=[], progress=store.progress)
    for source in naming_sources(store):
        if store.offline and not source.local:
            said.add(source, Offline("it was not asked, because no network is to be used (--offline)"))
            continue
        before = len(said.lines)
        try:
            for data in _patiently(source, sought, store.patience):
                try:
                    return parse(data)
                except ValueError as error:
                    said.add(source, error)
        except StoreError as error:
            said.add(source, error)
        if len(said.lines) == before:
            said.absent(source)
    lines = said.lines or [
        "no source knows files by name: name a folder, s3://..., release:... or run:... with --source"
    ]
    raise FetchFailed(f"{sought} was not found:" + "".join(f"\n  {line}" for line in lines))


def _patiently(source: NamingSource, sought: Sought, patience: Patience) -> list[bytes]:
    failures = 0
    while True:
        try:
            return list(_contents(source, sought, patience))
        except StoreError as error:
            failures += 1
            delay = patience.delay(failures, error)
            if delay is None:
                raise
            patience.sleep(delay)


def _contents(source: NamingSource, sought: Sought, patience: Patience) -> Iterator[bytes]:
    offer: Offer
    for offer in source.offers(sought, patience):
        if isinstance(offer, InPlace):
            try:
                with offer.path.open("rb") as file:
                    data = file.read(sought.most + 1)
            except OSError as error:
                raise FetchFailed(f"{offer.path} cannot be read ({error.strerror})") from error
        else:
            data = b""
            with offer.open(0, None) as stream:
                for chunk in watched(stream.chunks, patience):
                    data += chunk
                    if len(data) > sought.most:
                        break
                if len(data) < (stream.total or 0):
                    raise CutShort(f"{source.name} ended {sought} after {len(data)} of {stream.total} bytes")
        if sought.fits(len(data)):
            yield data
