"""Stages put together: from their own parts alone, byte for byte, or not at all; and llama.cpp runs them."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.engine.session import Session, Shape
from agent.errors import PackageInvalid, PackageNotWritten, UsageError
from agent.faults.packages import held, replace_part
from agent.header.reader import TensorInfo, read_model_header
from agent.package.container import Piece, pieces_of, read_pairs, same_data
from agent.package.manifest import FILE_NAME, Package, read_package
from agent.package.materialise import materialise
from agent.package.ownership import Shared, owner_of
from agent.package.stage import stage_parts
from tests.agent.package.conftest import Packages
from tests.agent.package.kit import KINDS, data_of, package_of, with_prediction_head

Twin = Callable[[str], Path]


def all_data(path: Path) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    """Type, shape and bytes of every tensor of a file."""
    pieces = pieces_of(read_model_header(path))
    return {name: (piece.tensor.type, piece.tensor.shape, data_of(piece)) for name, piece in pieces.items()}


def logits_of(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """What llama.cpp says after five tokens."""
    with Model(path, choose_device("cpu")) as model, Session(model, Shape(micro_batch=8)) as session:
        return session.decode(np.arange(1, 6, dtype=np.int32), 0)


def only(package: Package, folder: Path, start: int, end: int) -> Package:
    """A package of which nothing but the parts of one stage is here."""
    for part in stage_parts(package, start, end).parts:
        place = folder / part.path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package.place(part), place)
    shutil.copyfile(package.folder / FILE_NAME, folder / FILE_NAME)
    return read_package(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_all_layers_together_are_the_model(packages: Packages, twin: Twin, tmp_path: Path, kind: str) -> None:
    """Every tensor with its type, shape and bytes, every key of the model, and the same logits bit for bit."""
    package, model = packages(kind), twin(kind)
    layers = package.layer_count
    made = materialise(package, stage_parts(package, 0, layers), tmp_path / "whole.gguf")
    assert all_data(made.path) == all_data(model)
    mine = read_pairs(made.path)
    assert {key: mine[key] for key in read_pairs(model)} == read_pairs(model)
    assert made.stand_ins == 0
    assert np.array_equal(logits_of(made.path).view(np.uint32), logits_of(model).view(np.uint32))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_needs_its_own_parts_and_no_others(packages: Packages, twin: Twin, tmp_path: Path, kind: str) -> None:
    """With all other files absent it is put together, and holds what it owns: no layer of another stage, nothing twice."""
    package = packages(kind)
    whole = all_data(twin(kind))
    layers = package.layer_count
    for start, end in ((0, 3), (3, layers - 2), (layers - 2, layers)):
        alone = only(package, tmp_path / f"{start}", start, end)
        stage = stage_parts(alone, start, end)
        made = materialise(alone, stage, tmp_path / "stage.gguf")
        own = {name: facts for name, facts in whole.items() if owner_name(name) in {Shared.METADATA, *stage.owners}}
        assert all_data(made.path) == own
        assert made.tensors == len(own)
        assert made.sha256 is not None


def owner_name(name: str) -> object:
    """Who owns a tensor of this name."""
    return owner_of(TensorInfo(name, (1,), 0, 0, 4))


def test_three_stages_hold_every_tensor_of_the_model(packages: Packages, twin: Twin, tmp_path: Path) -> None:
    """Together they are the model: of what a layer or an end owns, each tensor is in one of them."""
    package, seen = packages("qwen3moe"), []
    for start, end in ((0, 2), (2, 7), (7, 8)):
        path = materialise(package, stage_parts(package, start, end), tmp_path / "stage.gguf").path
        seen += [name for name in all_data(path) if owner_name(name) != Shared.METADATA]
    assert sorted(seen) == sorted(all_data(twin("qwen3moe")))


def test_a_file_says_what_it_is(packages: Packages, tmp_path: Path) -> None:
    """The marks of the product, and the layers; what an earlier one said is not repeated."""
    package = packages("qwen3")
    path = materialise(package, stage_parts(package, 2, 5), tmp_path / "s.gguf", stand_ins=True).path
    metadata = read_model_header(path).metadata
    assert metadata["skippy.package.materialized"] is True
    assert metadata["skippy.package.part_count"] == 4
    assert (metadata["skippy.stage.layer_start"], metadata["skippy.stage.layer_end"]) == (2, 5)
    assert metadata["skippy.stage.others_are_zeros"] is True


def test_stand_ins_are_zeros_that_take_no_room(packages: Packages, twin: Twin, tmp_path: Path) -> None:
    """The file has every tensor of the model, and of other stages' tensors nothing: holes, on disks that know them."""
    package = packages("qwen3moe")
    stage = stage_parts(package, 3, 4)
    made = materialise(package, stage, tmp_path / "stage.gguf", stand_ins=True)
    whole = pieces_of(read_model_header(twin("qwen3moe")))
    pieces = pieces_of(read_model_header(made.path))
    assert pieces.keys() == whole.keys()
    for name, piece in pieces.items():
        own = owner_of(piece.tensor) in {Shared.METADATA, *stage.owners}
        assert same_data(piece, whole[name] if own else Piece(tensor=piece.tensor))
    assert made.stand_ins == len(whole) - made.tensors
    status = made.path.stat()
    assert status.st_size == made.size > 5 * stage.size
    if hasattr(status, "st_blocks"):
        assert status.st_blocks * 512 < made.size / 2


def test_stand_ins_need_the_shapes_of_the_others(packages: Packages, tmp_path: Path) -> None:
    """With the stage's parts alone nobody knows them; the missing part is named."""
    alone = only(packages("qwen3"), tmp_path / "alone", 2, 4)
    with pytest.raises(PackageInvalid, match=r"shared embeddings .* is needed for the shapes"):
        materialise(alone, stage_parts(alone, 2, 4), tmp_path / "stage.gguf", stand_ins=True)
    assert not (tmp_path / "stage.gguf").exists()


def test_a_prediction_head_comes_with_the_last_stage(tmp_path: Path) -> None:
    """And llama.cpp takes the whole that is put together with it."""
    model = with_prediction_head("glm4moe", tmp_path / "model.gguf")
    package = package_of(model, tmp_path / "package")
    last = materialise(package, stage_parts(package, 6, 8), tmp_path / "last.gguf").path
    assert {name for name in all_data(last) if name.startswith("blk.8.")} == {
        name for name in all_data(model) if name.startswith("blk.8.")
    }
    first = materialise(package, stage_parts(package, 0, 6), tmp_path / "first.gguf").path
    assert not any(name.startswith("blk.8.") for name in all_data(first))
    whole = materialise(package, stage_parts(package, 0, 8), tmp_path / "whole.gguf").path
    assert all_data(whole) == all_data(model)
    assert np.array_equal(logits_of(whole), logits_of(model))


def test_a_damaged_part_stops_it_and_another_stage_does_not_care(copies: Packages, tmp_path: Path) -> None:
    """All faults of the stage's own parts are named; a file that was there before stays."""
    package = copies("qwen3")
    for owner in (4, Shared.OUTPUT):
        path = package.place(package.parts[owner])
        path.write_bytes(path.read_bytes()[:-1] + b"\7")
    out = tmp_path / "stage.gguf"
    out.write_bytes(b"before")
    with pytest.raises(PackageInvalid) as refusal:
        materialise(package, stage_parts(package, 3, 8), out)
    assert "layer 4 (layers/layer-004.gguf) has sha256" in str(refusal.value)
    assert "shared output (shared/output.gguf) has sha256" in str(refusal.value)
    assert out.read_bytes() == b"before"
    assert materialise(package, stage_parts(package, 0, 3), out).tensors > 0


def test_what_two_parts_hold_is_refused(copies: Packages, tmp_path: Path) -> None:
    """A tensor of another layer, also one that is signed; the product would silently take the first of two."""
    package = copies("qwen3moe")
    stranger = next(iter(held(package, 6).values()))
    package = replace_part(package, 2, [*held(package, 2).values(), stranger])
    with pytest.raises(PackageInvalid, match=r"layer 2 holds blk\.6\..*, which layer 6 owns"):
        materialise(package, stage_parts(package, 0, 4), tmp_path / "stage.gguf")
    with pytest.raises(PackageInvalid, match=r"layer 6 holds blk\.6\..* once more"):
        materialise(package, stage_parts(package, 0, 8), tmp_path / "stage.gguf")


def test_what_every_part_may_repeat_is_taken_once(copies: Packages, tmp_path: Path) -> None:
    """As the product's writer does it; with other contents it is refused."""
    package = copies("rwkv7")
    norm = next(iter(held(package, Shared.METADATA).values()))
    package = replace_part(package, 2, [*held(package, 2).values(), norm])
    made = materialise(package, stage_parts(package, 1, 3), tmp_path / "stage.gguf")
    assert list(all_data(made.path)).count(norm.tensor.name) == 1
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"\1" * norm.size)
    own = [piece for name, piece in held(package, 2).items() if name != norm.tensor.name]
    package = replace_part(package, 2, [*own, Piece(tensor=norm.tensor, file=wrong)])
    with pytest.raises(PackageInvalid, match="once more, with other contents"):
        materialise(package, stage_parts(package, 1, 3), tmp_path / "stage.gguf")


def test_the_name_of_a_shard_is_refused(packages: Packages, tmp_path: Path) -> None:
    """llama.cpp would look for the other shards."""
    package = packages("qwen3")
    stage = stage_parts(package, 0, 8)
    with pytest.raises(UsageError, match="the name of a shard"):
        materialise(package, stage, tmp_path / "m-00001-of-00002.gguf")


def test_a_full_disk_leaves_nothing_behind(packages: Packages, tmp_path: Path) -> None:
    """No half stage, and not another name of it either."""
    package = packages("qwen3")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(PackageNotWritten, match="could not be written"):
            materialise(package, stage_parts(package, 0, 8), tmp_path / "stage.gguf")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
