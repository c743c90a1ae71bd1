"""The upstream, the weights, the servers. `SKIPPY_TEST_BUILDS=FOLDER` keeps upstream and builds between sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.commands.folders import twin_folder
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from tests.agent.gate.github_server import Server
from tests.agent.store.test_s3 import connect, seaweed
from tests.canary.builder import Shared
from tests.canary.night import BUCKET, PREFIX, Night
from tests.canary.product import FAMILIES, CanaryProduct, weights_key
from tests.canary.upstream import Upstream

__all__ = ["seaweed"]

MakeNight = Callable[[str], Night]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """What all workers of this session share."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = Path(os.environ.get("SKIPPY_TEST_BUILDS") or root / "canary").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return Shared(folder)


@pytest.fixture
def upstream(shared: Shared, tmp_path: Path) -> Upstream:
    """An upstream of the test's own, so that its head can move."""
    return shared.upstream().clone(tmp_path)


@pytest.fixture(scope="session")
def weights() -> dict[str, Path]:
    """architecture -> its twin, which the product pins as if it were a model."""
    return {arch: build_twin(recipe_for(arch, family=arch), twin_folder()) for arch in FAMILIES.values()}


@pytest.fixture
def product(tmp_path: Path, weights: dict[str, Path]) -> CanaryProduct:
    """The product's repository."""
    return CanaryProduct(tmp_path, weights)


@pytest.fixture
def s3(seaweed: str, weights: dict[str, Path]) -> str:
    """The S3 server with the weights in it."""
    client = connect(seaweed)
    for path in weights.values():
        client.upload_file(str(path), BUCKET, f"{PREFIX}/{weights_key(path)}")
    return seaweed


@pytest.fixture
def api(product: CanaryProduct) -> Iterator[Server]:
    """GitHub's API over the product's repository."""
    with Server(product) as running:
        yield running


@pytest.fixture
def night(
    tmp_path: Path, upstream: Upstream, product: CanaryProduct, s3: str, api: Server, shared: Shared
) -> MakeNight:
    """Begin a run of the canary."""

    def begin(run_id: str) -> Night:
        folder = tmp_path / f"run-{run_id}"
        folder.mkdir()
        return Night(folder=folder, upstream=upstream, product=product, s3=s3, api=api, shared=shared, run_id=run_id)

    return begin
