"""Writing packages: every tensor in the part that owns it, byte for byte; all of the package or nothing."""

from __future__ import annotations

import resource
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.digests import sha256_of_file
from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.errors import HeaderInvalid, NotAGguf, PackageInvalid, PackageNotWritten, UsageError, WrongRole
from agent.header.reader import read_header
from agent.package import write as module
from agent.package.container import mark, pieces_of, read_pairs, write_gguf
from agent.package.manifest import FILE_NAME, Package, read_package
from agent.package.materialise import materialise
from agent.package.ownership import Shared, owner_of
from agent.package.stage import stage_parts
from agent.package.validate import validate
from agent.package.write import Identity, write_package
from tests.agent.package.conftest import Packages
from tests.agent.package.kit import (
    IDENTITY,
    KINDS,
    copy_with,
    data_of,
    header_of,
    package_of,
    projector,
    renamed,
    retyped,
    split_model,
    with_prediction_head,
)

Twin = Callable[[str], Path]


def tensors_of(package: Package) -> dict[str, list[bytes]]:
    """What all parts hold, by name."""
    held: dict[str, list[bytes]] = {}
    for part in package.parts.values():
        for name, piece in pieces_of(package.header(part)).items():
            held.setdefault(name, []).append(data_of(piece))
    return held


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_is_in_one_part_byte_for_byte(packages: Packages, twin: Twin, kind: str) -> None:
    """No tensor is missing, there twice, renamed, or of other bytes; the metadata part has every key of the model."""
    package, model = packages(kind), twin(kind)
    held = tensors_of(package)
    whole = {name: data_of(piece) for name, piece in pieces_of(header_of(model)).items()}
    assert held == {name: [data] for name, data in whole.items()}
    assert read_pairs(package.place(package.parts[Shared.METADATA])) == read_pairs(model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_holds_what_it_owns(packages: Packages, kind: str) -> None:
    """A layer's part the tensors of that layer and no others; counts, sizes and digests are those of the files."""
    package = packages(kind)
    for owner, part in package.parts.items():
        header, path = package.header(part), package.place(part)
        assert {owner_of(tensor) for tensor in header.tensors} <= {owner}
        assert part.tensor_count == len(header.tensors)
        assert part.tensor_bytes == sum(tensor.n_bytes or 0 for tensor in header.tensors)
        assert (part.artifact_bytes, part.sha256) == (path.stat().st_size, sha256_of_file(path))


def test_experts_go_with_their_layer(packages: Packages) -> None:
    """Each layer's part has its three stacks of experts and its router, once."""
    package = packages("qwen3moe")
    found = Counter(
        (owner, tensor.part)
        for owner, part in package.parts.items()
        for tensor in package.header(part).tensors
        if "_exps." in tensor.name or "gate_inp" in tensor.name
    )
    stacks = ("ffn_down_exps.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_gate_inp.weight")
    assert found == Counter({(layer, stack): 1 for layer in range(8) for stack in stacks})


def test_what_every_stage_reads_is_in_the_metadata_part(packages: Packages) -> None:
    """The norm of the embeddings and other tensors of no layer, once."""
    package = packages("rwkv7")
    names = {tensor.name for tensor in package.header(package.parts[Shared.METADATA]).tensors}
    assert names == {"token_embd_norm.bias", "token_embd_norm.weight"}


@pytest.mark.parametrize("architecture", ["glm4moe", "deepseek32"])
def test_a_prediction_head_is_a_layer_of_the_package(tmp_path: Path, architecture: str) -> None:
    """Its tensors are packaged like those of any layer, and none is lost."""
    model = with_prediction_head(architecture, tmp_path / "model.gguf")
    package = package_of(model, tmp_path / "package")
    header = header_of(model)
    assert package.layer_count == header.block_count == header.trunk_layers + 1
    head = package.header(package.parts[header.trunk_layers])
    assert {tensor.name for tensor in head.tensors} >= {f"blk.{header.trunk_layers}.nextn.eh_proj.weight"}
    assert validate(package, header).valid


def test_a_split_model_gives_the_same_package(tmp_path: Path, packages: Packages, twin: Twin) -> None:
    """Shards are read as one model, tensors of a layer from several of them; what was split is not said in the package."""
    shards = split_model(
        twin("qwen3moe"),
        tmp_path / "shards",
        [lambda _: False, lambda piece: "attn" in piece.tensor.name, lambda piece: "attn" not in piece.tensor.name],
    )
    with Model(shards[0], choose_device("cpu")) as model:
        assert model.facts.n_layer == 8, "llama.cpp takes the shards for what they are"
    package = package_of(shards[1], tmp_path / "package")
    whole = packages("qwen3moe")
    assert {name: data for name, (data,) in tensors_of(package).items()} == {
        name: data for name, (data,) in tensors_of(whole).items()
    }
    metadata = package.place(package.parts[Shared.METADATA])
    assert read_pairs(metadata) == read_pairs(whole.place(whole.parts[Shared.METADATA]))
    assert [entry["path"] for entry in package.source["files"]] == [shard.name for shard in shards]
    assert validate(package, header_of(shards[0])).valid


def test_another_alignment_is_kept(tmp_path: Path, twin: Twin) -> None:
    """Data of every part and of a stage lie as the model's own alignment says."""
    pairs = read_pairs(twin("qwen3")) | {"general.alignment": mark("general.alignment", 128)}
    model = tmp_path / "model.gguf"
    write_gguf(model, pairs, list(pieces_of(header_of(twin("qwen3"))).values()), 128)
    package = package_of(model, tmp_path / "package")
    assert {package.header(part).alignment for part in package.files} == {128}
    assert validate(package, header_of(model)).valid
    whole = materialise(package, stage_parts(package, 0, 8), tmp_path / "whole.gguf").path
    assert header_of(whole).alignment == 128
    with Model(whole, choose_device("cpu")) as loaded:
        assert loaded.facts.n_layer == 8


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, twin: Twin) -> None:
    """No path of this machine, no clock: two packages of one model are the same package."""
    one, two = package_of(twin("lfm2"), tmp_path / "one"), package_of(twin("lfm2"), tmp_path / "two")
    assert one.sha256 == two.sha256
    assert str(tmp_path) not in (one.folder / FILE_NAME).read_text(encoding="utf-8")


def test_where_the_model_came_from_is_said(tmp_path: Path, twin: Twin) -> None:
    """Repository, revision and path there; size and digest of the file."""
    identity = Identity(
        model_id="acme/m:Q8", repo="acme/m", revision="f" * 40, file="Q8/model.gguf", abi_version="0.2.1"
    )
    package = write_package(twin("qwen3"), tmp_path / "package", identity)
    name = f"Q8/{twin('qwen3').name}"
    assert package.source["repo"] == "acme/m"
    assert package.source["revision"] == "f" * 40
    assert package.source["path"] == name
    assert package.source["sha256"] == package.source["files"][0]["sha256"] == sha256_of_file(twin("qwen3"))
    assert package.abi_version == "0.2.1"


def test_a_projector_is_copied_as_it_is(tmp_path: Path, twin: Twin) -> None:
    """And what is no projector is refused before anything is written."""
    mmproj = projector(tmp_path / "mmproj.gguf")
    package = write_package(twin("qwen3"), tmp_path / "package", IDENTITY, [mmproj])
    (copied,) = package.projectors
    assert package.place(copied).read_bytes() == mmproj.read_bytes()
    assert validate(package, header_of(twin("qwen3"))).valid
    with pytest.raises(WrongRole):
        write_package(twin("qwen3"), tmp_path / "other", IDENTITY, [twin("lfm2")])
    assert not (tmp_path / "other").exists()


def test_a_model_without_a_layer_is_refused(tmp_path: Path, twin: Twin) -> None:
    """A layer that nobody could own a tensor of, and a model that nothing can enter."""
    pieces = pieces_of(header_of(twin("qwen3")))
    holed = copy_with(twin("qwen3"), tmp_path / "a.gguf", [p for p in pieces.values() if p.tensor.layer != 3])
    with pytest.raises(PackageInvalid, match=r"layers \[3\] have no tensors"):
        package_of(holed, tmp_path / "package")
    deaf = copy_with(twin("qwen3"), tmp_path / "b.gguf", [p for n, p in pieces.items() if n != "token_embd.weight"])
    with pytest.raises(PackageInvalid, match=r"token_embd\.weight is missing"):
        package_of(deaf, tmp_path / "package")
    longer = dict(pieces) | {"x": renamed(pieces["blk.0.attn_q.weight"], "blk.9.attn_q.weight")}
    strange = copy_with(twin("qwen3"), tmp_path / "c.gguf", longer.values())
    with pytest.raises(PackageInvalid, match="of 9 layers, and block_count is 8"):
        package_of(strange, tmp_path / "package")
    assert not (tmp_path / "package").exists()


def test_a_type_of_unknown_size_is_refused(tmp_path: Path, twin: Twin) -> None:
    """Where its data ends nobody could say, so nothing is guessed."""
    pieces = list(pieces_of(header_of(twin("qwen3"))).values())
    model = copy_with(twin("qwen3"), tmp_path / "model.gguf", [retyped(pieces[-1], 156), *pieces[:-1]])
    with pytest.raises(PackageInvalid, match="type 156, whose size this skippy-agent does not know"):
        package_of(model, tmp_path / "package")
    assert not (tmp_path / "package").exists()


def test_what_is_no_model_is_refused(tmp_path: Path, twin: Twin) -> None:
    """Another format, a file cut short, a projector in place of a model."""
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<!DOCTYPE html><html></html>")
    with pytest.raises(NotAGguf):
        package_of(page, tmp_path / "package")
    short = tmp_path / "short.gguf"
    short.write_bytes(twin("qwen3").read_bytes()[:-1000])
    with pytest.raises(HeaderInvalid, match="truncated"):
        package_of(short, tmp_path / "package")
    with pytest.raises(WrongRole):
        package_of(projector(tmp_path / "mmproj.gguf"), tmp_path / "package")


def test_a_folder_in_use_is_left_as_it_is(tmp_path: Path, twin: Twin) -> None:
    """An empty one is taken, one with anything in it is not."""
    folder = tmp_path / "package"
    folder.mkdir()
    package_of(twin("qwen3"), folder)
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(UsageError, match="is there already"):
        package_of(twin("qwen3"), folder)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_of_two_writers_one_wins(tmp_path: Path, twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that was faster keeps its package, whole; the slower one says so and leaves nothing."""
    folder = tmp_path / "package"
    write = module.write_manifest

    def slower(draft: Path, values: dict[str, object]) -> None:
        monkeypatch.setattr(module, "write_manifest", write)
        write(draft, values)
        draft.rename(tmp_path / "aside")
        package_of(twin("qwen3"), folder)
        (tmp_path / "aside").rename(draft)

    monkeypatch.setattr(module, "write_manifest", slower)
    with pytest.raises(PackageNotWritten, match="could not be written"):
        package_of(twin("qwen3"), folder)
    assert [path.name for path in tmp_path.iterdir()] == ["package"]
    assert validate(read_package(folder), header_of(twin("qwen3"))).valid


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is asked for first; a disk that is full all the same ends in a named error and no half package."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(PackageNotWritten, match="could not be written"):
            package_of(twin("qwen3"), tmp_path / "package")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type(usage)(usage.total, usage.total, 1000))
    with pytest.raises(PackageNotWritten, match="make room"):
        package_of(twin("qwen3"), tmp_path / "package")
    assert list(tmp_path.iterdir()) == []


def test_parts_open_for_every_reader(packages: Packages) -> None:
    """Each part is a sound GGUF that names its architecture."""
    package = packages("gemma3")
    assert {read_header(package.place(part)).architecture for part in package.files} == {"gemma3"}
