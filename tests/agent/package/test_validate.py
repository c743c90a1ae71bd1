"""Validation: whatever is wrong with a package is found, named, and told apart."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.faults.packages import held, middle, replace_part
from agent.package.container import Piece, mark, pieces_of, read_pairs, write_gguf
from agent.package.manifest import FILE_NAME, Package, read_package
from agent.package.ownership import Owner, Shared
from agent.package.validate import Validation, validate
from tests.agent.package.conftest import Packages
from tests.agent.package.kit import (
    copy_with,
    data_of,
    edit_manifest,
    header_of,
    package_of,
    renamed,
    reread,
    retyped,
    with_prediction_head,
)

Twin = Callable[[str], Path]
KIND = "qwen3moe"


def found_in(package: Package, twin: Twin, kind: str = KIND) -> Validation:
    """What is found, compared with the model."""
    return validate(reread(package), header_of(twin(kind)))


def told(found: Validation, words: str) -> bool:
    """True if a problem says so."""
    return any(words in problem for problem in found.problems)


def test_a_sound_package_holds(packages: Packages, twin: Twin) -> None:
    """Nothing is wrong, every tensor and every byte was compared, and experts are counted."""
    found = validate(packages(KIND), header_of(twin(KIND)))
    assert found.valid
    assert found.problems == []
    header = header_of(twin(KIND))
    assert found.tensors == len(header.tensors)
    assert found.experts == 24
    assert found.bytes_compared == sum(tensor.n_bytes or 0 for tensor in header.tensors)


def test_without_the_model_what_stays_open_is_said(packages: Packages) -> None:
    """A package alone can be checked for all but what only the model shows."""
    found = validate(packages(KIND))
    assert found.valid
    assert found.bytes_compared == 0
    assert any("not compared with the model" in note for note in found.notes)


def test_an_empty_validation_is_not_valid() -> None:
    """Absent is not green."""
    assert not Validation().valid


def overwrite(owner: Owner, change: Callable[[bytes], bytes]) -> Callable[[Package], None]:
    """Other bytes in the file of a part."""

    def damage(package: Package) -> None:
        path = package.place(package.parts[owner])
        path.write_bytes(change(path.read_bytes()))

    return damage


def remove(owner: Owner) -> Callable[[Package], None]:
    """No file."""
    return lambda package: package.place(package.parts[owner]).unlink()


def flipped(data: bytes) -> bytes:
    """One bit of the last byte."""
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove(3), "layer 3 (layers/layer-003.gguf) is missing"),
        (remove(Shared.METADATA), "shared metadata (shared/metadata.gguf) is missing"),
        (remove(Shared.OUTPUT), "shared output (shared/output.gguf) is missing"),
        (overwrite(2, lambda data: data[:-100]), "layer 2 (layers/layer-002.gguf) has"),
        (overwrite(2, lambda data: data + b"\0"), "bytes, the manifest says"),
        (overwrite(2, flipped), "layer 2 (layers/layer-002.gguf) has sha256"),
        (overwrite(2, lambda data: (b"<!DOCTYPE html>" + data)[: len(data)]), "is no sound GGUF: html_page"),
        (overwrite(2, lambda data: b"version https://git-lfs".ljust(len(data))), "is no sound GGUF: lfs_pointer"),
        (overwrite(Shared.METADATA, flipped), "shared metadata (shared/metadata.gguf) has sha256"),
    ],
)
def test_a_damaged_file_is_named(copies: Packages, twin: Twin, damage: Callable[[Package], None], words: str) -> None:
    """Which part, in which file, and what is wrong with it; sizes first, then digests, then what the file is."""
    package = copies(KIND)
    damage(package)
    found = found_in(package, twin)
    assert not found.valid
    assert told(found, words), found.problems


def first(own: dict[str, Piece]) -> Piece:
    """The first tensor of a part."""
    return next(iter(own.values()))


def called(own: dict[str, Piece], name: str) -> Piece:
    """The first tensor of a part under another name."""
    return renamed(first(own), name)


def signed(change: Callable[[dict[str, Piece]], list[Piece]], owner: Owner = 3) -> Callable[[Package], Any]:
    """Other tensors in a part, with a manifest that agrees with it."""
    return lambda package: replace_part(package, owner, change(held(package, owner)))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (signed(lambda own: [*own.values()][1:]), "1 of 99 tensors are missing"),
        (signed(lambda own: [called(own, "blk.3.other.weight")]), "1 tensors are not in the model: blk.3.other.weight"),
        (signed(lambda own: [*own.values(), called(own, "blk.4.other.weight")]), "layer 3 holds blk.4.other.weight"),
        (signed(lambda own: [retyped(first(own), 26), *[*own.values()][1:]]), "is of type 26"),
        (signed(lambda own: [*own.values(), called(own, "output_norm.weight")]), "output_norm.weight is there twice"),
        (signed(lambda own: [*own.values(), called(own, "rope_freqs.weight")]), "is not in shared metadata, which owns it"),
        (signed(lambda _own: [], Shared.EMBEDDINGS), "token_embd.weight is missing"),
        (signed(lambda _own: [], 3), "layer 3 holds no tensor of its own"),
    ],
)  # fmt: skip
def test_what_is_signed_wrongly_is_found_all_the_same(
    copies: Packages, twin: Twin, damage: Callable[[Package], Any], words: str
) -> None:
    """Digests that agree prove nothing: tensors lost, renamed, of another type, twice, or in a part that does not own them."""
    package = copies(KIND)
    damage(package)
    found = found_in(package, twin)
    assert not found.valid
    assert told(found, words), found.problems


def test_experts_of_another_layer_are_found(copies: Packages, twin: Twin) -> None:
    """A stack of experts that lies in the next layer's part is named with both layers."""
    package = copies(KIND)
    layer = middle(package)
    own = held(package, layer)
    name = f"blk.{layer}.ffn_up_exps.weight"
    package = replace_part(package, layer + 1, [*held(package, layer + 1).values(), own[name]])
    package = replace_part(package, layer, [piece for other, piece in own.items() if other != name])
    found = found_in(package, twin)
    assert told(found, f"layer {layer + 1} holds {name}, which layer {layer} owns")
    assert told(found, f"{name} is not in layer {layer}, which owns it")


def test_other_bytes_are_found_though_everything_is_signed(copies: Packages, twin: Twin, tmp_path: Path) -> None:
    """The comparison with the model does not believe the manifest."""
    package = copies(KIND)
    own = held(package, 5)
    name, piece = next(iter(own.items()))
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"\1" * piece.size)
    replace_part(package, 5, [Piece(tensor=piece.tensor, file=wrong), *(p for n, p in own.items() if n != name)])
    found = found_in(package, twin)
    assert found.problems == [f"{name} holds other bytes than in the model"]


def test_other_metadata_are_found(copies: Packages, twin: Twin) -> None:
    """A key that differs from the model's changes what is computed, whatever the tensors are."""
    package = copies(KIND)
    part = package.parts[Shared.METADATA]
    path = package.place(part)
    pairs = read_pairs(path) | {"qwen3moe.expert_used_count": mark("qwen3moe.expert_used_count", 1), "x": mark("x", 1)}
    pieces = list(pieces_of(package.header(part)).values())
    draft = package.folder.with_name("draft.gguf")
    written = write_gguf(draft, pairs, pieces, 32)
    draft.replace(path)
    facts = {"artifact_bytes": written.size, "sha256": written.sha256}
    edit_manifest(package, lambda values: values["shared"]["metadata"].update(facts))
    found = found_in(package, twin)
    assert told(found, "the key qwen3moe.expert_used_count of the metadata part is not that of the model")
    assert told(found, "the key x of the metadata part")
    assert len(found.problems) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values.update(activation_width=128), "activation_width is 128, embedding_length"),
        (lambda values: values["source_model"].update(sha256="0" * 64), "made of another file"),
        (lambda values: values["layers"][2].update(tensor_count=5), "tensors, the manifest says 5"),
        (lambda values: values["layers"][2].update(tensor_bytes=5), "bytes of tensors, the manifest says 5"),
        (
            lambda values: values["layers"].pop() and values.update(layer_count=7),
            "block_count of its metadata part is 8",
        ),
    ],
)
def test_a_manifest_that_lies_is_found(
    copies: Packages, twin: Twin, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    """Widths, counts, the source: what the manifest says is compared with what is there."""
    package = copies(KIND)
    edit_manifest(package, change)
    found = found_in(package, twin)
    assert told(found, words), found.problems


def test_the_package_of_another_model_is_found(packages: Packages, twin: Twin, tmp_path: Path) -> None:
    """One with the same names and shapes and other weights, as a later upload of the same model has."""
    pieces = pieces_of(header_of(twin(KIND)))
    first, second = (pieces[f"blk.{layer}.attn_q.weight"] for layer in (0, 1))
    others = [
        {
            first.tensor.name: renamed(second, first.tensor.name),
            second.tensor.name: renamed(first, second.tensor.name),
        }.get(n, p)
        for n, p in pieces.items()
    ]
    other = copy_with(twin(KIND), tmp_path / "other.gguf", others)
    found = validate(packages(KIND), header_of(other))
    assert sorted(found.problems)[:2] == [
        "blk.0.attn_q.weight holds other bytes than in the model",
        "blk.1.attn_q.weight holds other bytes than in the model",
    ]
    assert told(found, "the package was made of another file")


def test_parts_of_another_architecture_are_found(copies: Packages, packages: Packages, twin: Twin) -> None:
    """A layer of another model does not pass for one of this."""
    package, other = copies(KIND), packages("qwen3")
    part = other.parts[2]
    package.place(package.parts[2]).write_bytes(other.place(part).read_bytes())
    edit_manifest(package, lambda values: values["layers"][2].update(part.to_json()))
    found = found_in(package, twin)
    assert told(found, "layer 2 is of a qwen3, shared metadata of a qwen3moe")


def test_what_all_parts_may_repeat_must_be_the_same_everywhere(copies: Packages, twin: Twin, tmp_path: Path) -> None:
    """The product's writer puts the tensors of no layer into every part; with other contents they are a fault."""
    package = copies("rwkv7")
    norm = next(iter(held(package, Shared.METADATA).values()))
    repeated = replace_part(package, 2, [*held(package, 2).values(), norm])
    assert validate(repeated, header_of(twin("rwkv7"))).valid
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"\1" * norm.size)
    bad = Piece(tensor=norm.tensor, file=wrong)
    differing = replace_part(repeated, 3, [*held(package, 3).values(), bad])
    found = validate(differing, header_of(twin("rwkv7")))
    assert found.problems == [f"layer 3 repeats {norm.tensor.name} with other contents"]


def test_files_that_are_not_of_the_package_are_named(copies: Packages, twin: Twin) -> None:
    """They do no harm, and nobody takes one for a part."""
    package = copies(KIND)
    (package.folder / "README.md").write_text("hello")
    (package.folder / "layers/layer-999.gguf").write_bytes(b"GGUF")
    found = found_in(package, twin)
    assert found.valid
    assert "2 files are not of the package: README.md, layers/layer-999.gguf" in found.notes


def test_prediction_heads_and_one_matrix_at_both_ends_are_noted(packages: Packages, tmp_path: Path) -> None:
    """Whoever plans stages should know both."""
    assert "no output matrix: the last stage takes the token embeddings too" in validate(packages("gemma")).notes
    package = package_of(with_prediction_head("glm4moe", tmp_path / "model.gguf"), tmp_path / "package")
    assert any("prediction (MTP) heads: they go with layer 7" in note for note in validate(package).notes)


@settings(max_examples=25)
@given(
    st.sampled_from([3, *Shared]),
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_whatever_stands_in_a_part_is_told(
    packages: Packages, twin: Twin, owner: Owner, changes: list[tuple[int, int]]
) -> None:
    """Bytes changed anywhere in a part that is signed anew: a problem, or, where only padding changed, the model's own bytes."""
    package = packages(KIND)
    part = package.parts[owner]
    data = bytearray(package.place(part).read_bytes())
    for place, change in changes:
        data[place % len(data)] ^= change
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "package"
        shutil.copytree(package.folder, folder, copy_function=os.link)
        target = folder / part.path
        target.unlink()
        target.write_bytes(data)
        (folder / FILE_NAME).unlink()
        facts = part.to_json() | {"sha256": hashlib.sha256(data).hexdigest()}
        values = json.loads((package.folder / FILE_NAME).read_text(encoding="utf-8"))
        (values["shared"] if isinstance(owner, Shared) else values["layers"])[owner].update(facts)
        (folder / FILE_NAME).write_text(json.dumps(values), encoding="utf-8")
        mutant = read_package(folder)
        found = validate(mutant, header_of(twin(KIND)))
        if found.valid:
            mine = {name: data_of(piece) for name, piece in held(mutant, owner).items()}
            assert mine == {name: data_of(piece) for name, piece in held(package, owner).items()}
