"""A hub, a store, and files that look like models."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.store.patience import Patience
from agent.store.root import open_root
from agent.store.sources.spec import parse_sources
from agent.store.store import Store
from agent.store.wanted import Wanted
from tests.agent.store.hub_server import Hub, serve

REPO, REVISION = "acme/model-GGUF", "a" * 40
Opener = Callable[..., Store]


def model_bytes(size: int, seed: int = 0) -> bytes:
    """Bytes with the head of a GGUF and no repetition."""
    return b"GGUF\x03\x00\x00\x00" + random.Random(seed).randbytes(size - 8)


def wanted(data: bytes, path: str = "model.gguf", repo: str = REPO, revision: str = REVISION) -> Wanted:
    """What a plan says about `data`."""
    return Wanted(repo=repo, revision=revision, path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


class Notes:
    """Keeps what a store tells."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.bytes: dict[str, int] = {}
        self.begun: list[tuple[str, str, int, int]] = []

    def begin(self, name: str, what: str, done: int, total: int) -> None:
        """Keep it."""
        self.begun.append((name, what, done, total))

    def advance(self, name: str, count: int) -> None:
        """Add it up."""
        self.bytes[name] = self.bytes.get(name, 0) + count

    def end(self, name: str) -> None:
        """Nothing to keep."""

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the credentials, the caches or the proxies of whoever runs it."""
    import os

    for name in list(os.environ):
        if name.startswith(("HF_", "SKIPPY_", "AWS_", "GITHUB_", "GH_", "HUGGING")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub that runs."""
    with serve(Hub()) as running:
        yield running


@pytest.fixture
def waits() -> list[float]:
    """The seconds that were waited for, without waiting."""
    return []


@pytest.fixture
def store(tmp_path: Path, waits: list[float]) -> Opener:
    """Open a store under the test's folder with the sources that are given."""

    def open_store(*sources: str, folder: str = "store", **options: Any) -> Store:
        root = open_root(tmp_path / folder)
        patience = {"sleep": waits.append, "attempts": 3, "read": 5.0} | options.pop("patience", {})
        return Store(
            root=root,
            sources=parse_sources(sources, spool_folder=root.partials),
            patience=Patience(**patience),
            floor=options.pop("floor", 0),
            progress=options.pop("progress", Notes()),
            **options,
        )

    return open_store


def fetch(store: Store, files: Sequence[Wanted]) -> list[bytes]:
    """What the store lends, read."""
    with store.lend(files) as lent:
        return [lent[file].read_bytes() for file in files]


def leftovers(store: Store) -> list[Path]:
    """Unfinished files of a store."""
    return sorted(store.root.partials.glob("*"))
