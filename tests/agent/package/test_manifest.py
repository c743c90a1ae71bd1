"""The manifest: every fault of it is named, at once, and nothing in it leads out of the package."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import PackageInvalid
from agent.package.manifest import (
    FILE_NAME,
    LATER_FILE_NAME,
    SCHEMA_FILE,
    Package,
    is_safe_path,
    parse_manifest,
    read_package,
)
from agent.package.ownership import Shared
from tests.agent.package.conftest import Packages

FOLDER = Path("package")
DIGEST = "a" * 64


def part(path: str, tensors: int = 1) -> dict[str, Any]:
    """An entry of a file."""
    size = 4 * tensors
    return {"path": path, "tensor_count": tensors, "tensor_bytes": size, "artifact_bytes": 100, "sha256": DIGEST}


def manifest(layers: int = 2) -> dict[str, Any]:
    """A sound one."""
    return {
        "schema_version": 1,
        "model_id": "acme/model:Q8_0",
        "source_model": {"path": "model.gguf", "sha256": DIGEST},
        "format": "layer-package",
        "layer_count": layers,
        "activation_width": 64,
        "shared": {
            "metadata": part("shared/metadata.gguf", 0),
            "embeddings": part("shared/embeddings.gguf"),
            "output": part("shared/output.gguf"),
        },
        "layers": [{"layer_index": index} | part(f"layers/layer-{index:03d}.gguf") for index in range(layers)],
        "skippy_abi_version": "0.1.0",
    }


def parse(values: Any) -> Package:
    """Parse a manifest that is given as values."""
    return parse_manifest(json.dumps(values).encode(), FOLDER)


def test_a_manifest_is_read(packages: Packages) -> None:
    """Every layer and the three shared parts, by what they own, in order; the manifest may be named itself."""
    package = packages("qwen3moe")
    assert list(package.parts) == [*Shared, *range(8)]
    assert package.activation_width == 64
    assert read_package(package.folder / FILE_NAME) == package
    assert json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))["properties"]["schema_version"] == {"const": 1}


def test_layers_may_be_listed_in_any_order_and_digests_in_capitals() -> None:
    """What a writer is free to do."""
    values = manifest(3)
    values["layers"].reverse()
    values["layers"][0]["sha256"] = "B" * 64
    package = parse(values)
    assert list(package.parts) == [*Shared, 0, 1, 2]
    assert package.parts[2].sha256 == "b" * 64


def test_a_later_writer_may_say_more() -> None:
    """Keys that this version does not know do no harm."""
    values = manifest() | {"generation": {"speculative_decoding": {"default": "mtp"}}, "new": 1, "projectors": []}
    values["layers"][0]["new"] = 1
    assert parse(values).layer_count == 2


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one value."""

    def change(values: Any) -> None:
        for step in path[:-1]:
            values = values[step]
        values[path[-1]] = value

    return change


def drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    """A change that removes one value."""

    def change(values: Any) -> None:
        for step in path[:-1]:
            values = values[step]
        del values[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("schema_version", value=2), "$.schema_version: 1 was expected"),
        (put("format", value="zip"), "$.format: 'layer-package' was expected"),
        (put("model_id", value=" "), "$.model_id"),
        (put("layer_count", value=0), "$.layer_count"),
        (put("layer_count", value=513), "$.layer_count"),
        (put("layer_count", value=3), "layer 2 is missing"),
        (put("layer_count", value=1), "layer 1 is there, but layer_count is 1"),
        (put("skippy_abi_version", value="one"), "$.skippy_abi_version"),
        (put("activation_width", value=0), "$.activation_width"),
        (drop("source_model"), "'source_model' is a required property"),
        (put("source_model", "sha256", value="abc"), "$.source_model.sha256"),
        (drop("shared", "output"), "'output' is a required property"),
        (put("shared", "output", "sha256", value="g" * 64), "$.shared.output.sha256"),
        (put("layers", 0, "artifact_bytes", value=0), "$.layers[0].artifact_bytes"),
        (put("layers", 0, "layer_index", value=1), "layer 1 is there 2 times"),
        (put("layers", 0, "tensor_count", value=0), "layer 0: 0 tensors cannot have 4 bytes"),
        (put("layers", 0, "path", value="layers/layer-001.gguf"), "is that of layer 0 too"),
        (put("layers", 0, "path", value="LAYERS/layer-001.gguf"), "is that of layer 0 too"),
        (put("layers", 0, "path", value=FILE_NAME), "is that of the manifest too"),
        (put("projectors", value=[part("p.gguf") | {"kind": "lora"}]), "$.projectors[0].kind"),
        (put("layers", value=[]), "$.layers"),
    ],
)  # fmt: skip
def test_each_fault_is_named(change: Callable[[dict[str, Any]], None], words: str) -> None:
    """Where it is and what would be right."""
    values = manifest()
    change(values)
    with pytest.raises(PackageInvalid) as refusal:
        parse(values)
    assert words in str(refusal.value)


UNSAFE = [
    "/etc/passwd",
    "../x.gguf",
    "a/../../x.gguf",
    "a//b.gguf",
    "./x.gguf",
    "a\\..\\x",
    "C:/x",
    "a\nb",
    "",
    "x/",
    ".",
]


@pytest.mark.parametrize("path", UNSAFE)
def test_no_path_leads_out_of_the_package(path: str) -> None:
    """Absolute ones, parents, other systems' separators, drives and controls are refused, whatever they lead to."""
    assert not is_safe_path(path)
    values = manifest()
    values["layers"][1]["path"] = path
    with pytest.raises(PackageInvalid, match=r"could lead out of the package|\$\.layers\[1\]\.path"):
        parse(values)


def test_all_faults_are_named_at_once() -> None:
    """Nobody corrects a manifest fault by fault."""
    values = manifest(4)
    values["layers"][1]["path"] = "../x"
    values["layers"][2]["layer_index"] = 3
    with pytest.raises(PackageInvalid) as refusal:
        parse(values)
    for words in ("layer 2 is missing", "layer 3 is there 2 times", "could lead out"):
        assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no JSON"),
        (b"<!DOCTYPE html>", "no JSON"),
        (b"\xff\xfe{}", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "is not of type 'object'"),
        (b"null", "is not of type 'object'"),
        (b'{"layer_count": 1, "layer_count": 2}', "layer_count is there twice"),
        (b"version https://git-lfs.github.com/spec/v1\n", "no JSON"),
    ],
)
def test_what_is_no_manifest_is_refused(data: bytes, words: str) -> None:
    """An error page, a pointer, another encoding, JSON that readers disagree about."""
    with pytest.raises(PackageInvalid) as refusal:
        parse_manifest(data, FOLDER)
    assert words in str(refusal.value)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    """And one of the later format is told apart from none."""
    with pytest.raises(PackageInvalid, match=f"holds no {FILE_NAME}"):
        read_package(tmp_path)
    (tmp_path / LATER_FILE_NAME).write_text("{}")
    with pytest.raises(PackageInvalid, match="a later format"):
        read_package(tmp_path)


@given(st.data())
def test_a_manifest_with_anything_in_it_is_read_or_refused(data: st.DataObject) -> None:
    """Whatever stands in one place of it, the answer is a package or a named fault, never another error."""
    values = manifest()
    places = [(values, key) for key in values]
    places += [(values["layers"][0], key) for key in values["layers"][0]]
    places += [(values["shared"], key) for key in values["shared"]]
    target, key = data.draw(st.sampled_from(places))
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
    nested = st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=5), scalars, max_size=3)
    target[key] = data.draw(scalars | nested)
    with contextlib.suppress(PackageInvalid):
        package = parse(values)
        assert len(package.parts) == package.layer_count + len(Shared)
