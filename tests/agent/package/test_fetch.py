"""A stage from a hub, from S3, from a folder: its own parts and no others, each verified before it is used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from agent.errors import FetchFailed, NotPinned, PackageInvalid, StageInvalid
from agent.package.fetch import lend_stage, pinned_parts, wanted_manifest
from agent.package.manifest import FILE_NAME, Package
from agent.package.materialise import materialise
from agent.package.stage import stage_parts
from agent.package.write import write_package
from matrixgen.family import Artifact, Family, FileDigest
from matrixgen.manifest import Manifest
from tests.agent.conftest import changed
from tests.agent.package.conftest import Packages
from tests.agent.package.kit import IDENTITY, projector, with_prediction_head
from tests.agent.store.conftest import REPO, REVISION, Opener, _own_environment, hub, store, waits
from tests.agent.store.hub_server import Hub
from tests.agent.store.test_s3 import connect, rclone

__all__ = ["_own_environment", "hub", "rclone", "store", "waits"]


@pytest.fixture(scope="module")
def tied(packages: Packages) -> Package:
    """A package of eight layers whose token embeddings serve at both ends; made before a test has its own home."""
    return packages("gemma")


@pytest.fixture(scope="module")
def moe(packages: Packages) -> Package:
    """One of eight layers with experts and an output matrix."""
    return packages("qwen3moe")


def family_of(manifest: Manifest, package: Package, prefix: str = "") -> Family:
    """A row that pins the manifest of a package, and nothing else of it."""
    data = (package.folder / FILE_NAME).read_bytes()
    file = FileDigest(f"{prefix}{FILE_NAME}", len(data), hashlib.sha256(data).hexdigest())
    artifact = Artifact(repo=REPO, revision=REVISION, selector="", files=(file,))
    row: Family = changed(manifest.family("deepseek3"), family="packaged", package=artifact)
    return row


def publish(hub: Hub, package: Package, prefix: str = "") -> None:
    """Put a whole package on the hub."""
    for path in package.folder.rglob("*.*"):
        hub.files[REPO, REVISION, prefix + path.relative_to(package.folder).as_posix()] = path.read_bytes()


def asked(hub: Hub) -> set[str]:
    """The files whose bytes were asked for."""
    return {path.partition(REVISION + "/")[2] for method, path, _ in hub.seen if method == "GET"}


@pytest.mark.parametrize(
    ("span", "owned"),
    [
        ((0, 3), ["shared/embeddings.gguf", *(f"layers/layer-00{layer}.gguf" for layer in range(3))]),
        ((3, 5), ["layers/layer-003.gguf", "layers/layer-004.gguf"]),
        ((5, 8), ["shared/output.gguf", *(f"layers/layer-00{layer}.gguf" for layer in range(5, 8))]),
    ],
)
def test_only_the_parts_of_the_stage_are_fetched(
    manifest: Manifest, hub: Hub, store: Opener, moe: Package, tmp_path: Path, span: tuple[int, int], owned: list[str]
) -> None:
    """The manifest, the metadata part and what the stage owns; the rest is never asked for. They make the stage's file."""
    publish(hub, moe)
    opened = store(f"hub:{hub.address}")
    expected = {FILE_NAME, "shared/metadata.gguf", *owned}
    with lend_stage(opened, family_of(manifest, moe), *span) as lent:
        assert asked(hub) == expected
        assert {path.relative_to(lent.package.folder).as_posix() for path in lent.files} == expected
        made = materialise(lent.package, lent.stage, tmp_path / "stage.gguf")
    other = materialise(moe, stage_parts(moe, *span), tmp_path / "other.gguf")
    assert made.path.read_bytes() == other.path.read_bytes()
    total = sum((moe.folder / path).stat().st_size for path in expected)
    assert hub.sent == total


def test_a_second_stage_on_the_same_machine_fetches_what_is_new(
    manifest: Manifest, hub: Hub, store: Opener, moe: Package
) -> None:
    """What is here already is not asked for again, and the same stage asks for nothing."""
    publish(hub, moe)
    opened, row = store(f"hub:{hub.address}"), family_of(manifest, moe)
    with lend_stage(opened, row, 0, 3):
        pass
    hub.seen.clear()
    with lend_stage(opened, row, 2, 4):
        assert asked(hub) == {"layers/layer-003.gguf"}
    hub.seen.clear()
    with lend_stage(opened, row, 0, 3):
        assert hub.seen == []


def test_the_last_stage_of_a_tied_model_takes_the_embeddings(
    manifest: Manifest, hub: Hub, store: Opener, tied: Package
) -> None:
    """The output part says that it has no matrix of its own, and only then they are asked for."""
    publish(hub, tied)
    with lend_stage(store(f"hub:{hub.address}"), family_of(manifest, tied), 6, 8) as lent:
        assert lent.stage.tied
    assert "shared/embeddings.gguf" in asked(hub)
    assert "layers/layer-005.gguf" not in asked(hub)


def test_a_package_below_a_folder_of_its_repository(manifest: Manifest, hub: Hub, store: Opener, moe: Package) -> None:
    """Parts are beside their manifest, wherever that is."""
    publish(hub, moe, "Q4/")
    with lend_stage(store(f"hub:{hub.address}"), family_of(manifest, moe, "Q4/"), 3, 4):
        assert asked(hub) == {f"Q4/{path}" for path in (FILE_NAME, "shared/metadata.gguf", "layers/layer-003.gguf")}


def test_from_a_folder_nothing_is_copied(manifest: Manifest, store: Opener, moe: Package, tmp_path: Path) -> None:
    """Parts are hashed and used where they are, with no network."""
    mirror = tmp_path / "mirror" / REPO / REVISION
    for part in stage_parts(moe, 3, 5).parts:
        target = mirror / part.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(moe.place(part).read_bytes())
    (mirror / FILE_NAME).write_bytes((moe.folder / FILE_NAME).read_bytes())
    opened = store(str(tmp_path / "mirror"), offline=True)
    with lend_stage(opened, family_of(manifest, moe), 3, 5) as lent:
        assert all(path.resolve().is_relative_to(mirror) for path in lent.files)
        assert materialise(lent.package, lent.stage, tmp_path / "stage.gguf").tensors > 0
    assert list(opened.root.blobs()) == []


@pytest.mark.slow
def test_from_s3(manifest: Manifest, store: Opener, moe: Package, rclone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that mirrors the repository."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = connect(rclone)
    for part in stage_parts(moe, 0, 2).parts:
        client.put_object(Bucket="models", Key=f"m/{REPO}/{REVISION}/{part.path}", Body=moe.place(part).read_bytes())
    data = (moe.folder / FILE_NAME).read_bytes()
    client.put_object(Bucket="models", Key=f"m/{REPO}/{REVISION}/{FILE_NAME}", Body=data)
    with lend_stage(store(f"s3://models/m?endpoint={rclone}"), family_of(manifest, moe), 0, 2) as lent:
        assert [path.name for path in lent.files][:3] == [FILE_NAME, "metadata.gguf", "embeddings.gguf"]


@pytest.mark.parametrize("path", [FILE_NAME, "shared/metadata.gguf", "layers/layer-003.gguf"])
def test_wrong_bytes_are_refused(manifest: Manifest, hub: Hub, store: Opener, moe: Package, path: str) -> None:
    """One byte of the manifest, of the metadata or of a layer: the chain from the row to the part breaks, nothing is lent."""
    publish(hub, moe)
    data = hub.files[REPO, REVISION, path]
    hub.files[REPO, REVISION, path] = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(FetchFailed, match="wrong_bytes"):
        lend_stage(store(f"hub:{hub.address}"), family_of(manifest, moe), 3, 4).__enter__()


def test_a_part_that_is_not_there_is_named(manifest: Manifest, hub: Hub, store: Opener, moe: Package) -> None:
    """And no other revision is taken."""
    publish(hub, moe)
    del hub.files[REPO, REVISION, "layers/layer-003.gguf"]
    with pytest.raises(FetchFailed, match=r"layers/layer-003\.gguf"):
        lend_stage(store(f"hub:{hub.address}"), family_of(manifest, moe), 3, 4).__enter__()


def test_a_stage_that_does_not_exist_fetches_no_layer(
    manifest: Manifest, hub: Hub, store: Opener, moe: Package
) -> None:
    """The metadata part is enough to know."""
    publish(hub, moe)
    with pytest.raises(StageInvalid, match="the model has 8 layers"):
        lend_stage(store(f"hub:{hub.address}"), family_of(manifest, moe), 3, 12).__enter__()
    assert not any(path.startswith("layers/") for path in asked(hub))


def test_a_manifest_that_leads_elsewhere_is_refused(
    manifest: Manifest, hub: Hub, store: Opener, moe: Package, tmp_path: Path
) -> None:
    """A pinned manifest is still no reason to write outside of the store."""
    values = json.loads((moe.folder / FILE_NAME).read_text(encoding="utf-8"))
    values["layers"][3]["path"] = "../../../outside.gguf"
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / FILE_NAME).write_text(json.dumps(values))
    hostile = changed(moe, folder=folder)
    publish(hub, moe)
    hub.files[REPO, REVISION, FILE_NAME] = (folder / FILE_NAME).read_bytes()
    with pytest.raises(PackageInvalid, match="could lead out of the package"):
        lend_stage(store(f"hub:{hub.address}"), family_of(manifest, hostile), 3, 4).__enter__()


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A package with a prediction head and a projector."""
    folder = tmp_path_factory.mktemp("complete")
    model = with_prediction_head("glm4moe", folder / "model.gguf")
    mmproj = projector(folder / "mmproj.gguf")
    return write_package(model, folder / "package", IDENTITY, [mmproj])


def test_projectors_go_with_the_first_stage_and_heads_with_the_last(
    manifest: Manifest, hub: Hub, store: Opener, complete: Package
) -> None:
    """Neither is fetched by the other."""
    publish(hub, complete)
    opened, row = store(f"hub:{hub.address}"), family_of(manifest, complete)
    with lend_stage(opened, row, 0, 2):
        assert "projectors/mmproj.gguf" in asked(hub)
        assert "layers/layer-008.gguf" not in asked(hub)
    hub.seen.clear()
    with lend_stage(opened, row, 7, 8):
        assert "projectors/mmproj.gguf" not in asked(hub)
        assert {"layers/layer-007.gguf", "layers/layer-008.gguf"} <= asked(hub)


def test_a_row_that_does_not_pin_its_package_is_refused(manifest: Manifest, moe: Package) -> None:
    """No package, a later format, no manifest in it, no digest: each says what to add."""
    row = family_of(manifest, moe)
    assert row.package is not None
    with pytest.raises(NotPinned, match="names no package"):
        wanted_manifest(changed(row, package=None))
    later = row.package._replace(files=(FileDigest("skippy-model-package.json", None, None),))
    with pytest.raises(PackageInvalid, match="a later format"):
        wanted_manifest(changed(row, package=later))
    with pytest.raises(NotPinned, match=f"without its {FILE_NAME}"):
        wanted_manifest(changed(row, package=row.package._replace(files=())))
    for artifact in (
        row.package._replace(revision=None),
        row.package._replace(revision="main"),
        row.package._replace(files=(FileDigest(FILE_NAME, None, None),)),
        row.package._replace(files=(FileDigest(FILE_NAME, 10, "abc"),)),
    ):
        with pytest.raises(NotPinned):
            wanted_manifest(changed(row, package=artifact))


def test_the_parts_of_a_pinned_package_are_pinned(manifest: Manifest, hub: Hub, store: Opener, moe: Package) -> None:
    """A clean-up of what no row pins can spare them, as long as the manifest that pins them is here."""
    publish(hub, moe)
    opened, row = store(f"hub:{hub.address}"), family_of(manifest, moe)
    assert pinned_parts(row, opened.root.blob) == frozenset()
    with lend_stage(opened, row, 0, 2):
        pass
    assert pinned_parts(row, opened.root.blob) == {part.sha256 for part in moe.files}
    assert pinned_parts(manifest.family("qwen3-dense"), opened.root.blob) == frozenset()
