"""`skippy-agent package` and `fetch --stage`, as a user calls them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.package.manifest import FILE_NAME, Package
from tests.agent.conftest import Cli
from tests.agent.package.conftest import Packages
from tests.agent.package.kit import projector
from tests.agent.store.conftest import REPO, REVISION, hub
from tests.agent.store.hub_server import Hub

__all__ = ["hub"]

Twin = Callable[[str], Path]
ID = ("--model-id", "acme/m:Q8")


def test_write_validate_materialise(cli: Cli, twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three commands one after the other: a package, that it holds, and a stage of it that llama.cpp loads."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    model, folder, stage = twin("qwen3moe"), tmp_path / "package", tmp_path / "stage.gguf"
    written = cli("package", "write", model, "-o", folder, *ID)
    assert written.code == 0, written.err
    assert "8 layers, 99 tensors, 11 parts" in written.out
    values = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    assert values["created_at_unix_secs"] == 1790000000
    checked = cli("package", "validate", folder, "--model", model)
    assert checked.code == 0
    assert "99 tensors, each owned once" in checked.out
    assert "it holds" in checked.out
    made = cli("package", "materialise", folder, "--stage", "2:5", "-o", stage, "--stand-ins")
    assert made.code == 0
    assert "stage [2, 5)" in made.out
    inspected = cli("inspect", stage, "--json", "--device", "cpu")
    assert json.loads(inspected.out)["contract"]["legal_cuts"] == [*range(1, 8)]


def test_json_and_nothing_else(cli: Cli, twin: Twin, tmp_path: Path) -> None:
    """Each command prints one object with what a script needs."""
    folder = tmp_path / "package"
    written = json.loads(cli("package", "write", twin("gemma"), "-o", folder, *ID, "--json").out)
    assert written["valid"]
    assert written["manifest_bytes"] == (folder / FILE_NAME).stat().st_size
    found = json.loads(cli("package", "validate", folder, "--json").out)
    assert found["valid"]
    assert found["manifest_sha256"] == written["manifest_sha256"]
    assert found["problems"] == []
    made = json.loads(cli("package", "materialise", folder, "--stage", "6:8", "-o", tmp_path / "s.gguf", "--json").out)
    assert made["stage"]["tied"]
    assert made["stage"]["parts"][1] == "shared/embeddings.gguf"
    assert made["sha256"]


def test_a_damaged_package_exits_with_one(cli: Cli, copies: Packages, twin: Twin) -> None:
    """Each problem is a line; in JSON they are a list."""
    package = copies("qwen3")
    (package.folder / "layers/layer-002.gguf").unlink()
    (package.folder / "README.md").write_text("hello")
    done = cli("package", "validate", package.folder, "--model", twin("qwen3"))
    assert done.code == 1
    assert "WRONG: layer 2 (layers/layer-002.gguf) is missing" in done.out
    assert "note: 1 files are not of the package: README.md" in done.out
    assert "it does not hold" in done.out
    found = json.loads(cli("package", "validate", package.folder, "--json").out)
    assert not found["valid"]
    assert found["problems"]


def test_the_options_reach_the_manifest(cli: Cli, twin: Twin, tmp_path: Path) -> None:
    """Source and library version are written as they were given; a projector is a part."""
    mmproj = projector(tmp_path / "mmproj.gguf")
    options = [
        "--source-repo",
        "acme/m",
        "--source-revision",
        "f" * 40,
        "--source-file",
        "Q8/m.gguf",
        "--abi-version",
        "1.2.3",
    ]
    done = cli("package", "write", twin("qwen3"), "-o", tmp_path / "p", *ID, *options, "--projector", mmproj)
    assert done.code == 0, done.err
    values = json.loads((tmp_path / "p" / FILE_NAME).read_text(encoding="utf-8"))
    assert values["model_id"] == "acme/m:Q8"
    assert values["source_model"]["repo"] == "acme/m"
    assert values["source_model"]["revision"] == "f" * 40
    assert values["skippy_abi_version"] == "1.2.3"
    assert values["projectors"][0]["kind"] == "mmproj"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["materialise", "{p}", "--stage", "0-3", "-o", "{t}/s.gguf"], 2, "'0-3' is no stage: give START:END"),
        (["materialise", "{p}", "--stage", "0:30", "-o", "{t}/s.gguf"], 2, "the model has 8 layers"),
        (["materialise", "{p}", "--stage", "0:3", "-o", "{p}/s.gguf"], 2, "lies in the package"),
        (["materialise", "{t}", "--stage", "0:3", "-o", "{t}/s.gguf"], 2, f"holds no {FILE_NAME}"),
        (["materialise", "{p}", "--stage", "0:3", "-o", "{m}/s.gguf"], 4, "could not be written"),
        (["validate", "{t}/none"], 2, f"holds no {FILE_NAME}"),
        (["validate", "{p}", "--model", "{t}/none.gguf"], 2, "missing_file"),
        (["write", "{m}", "-o", "{p}", *ID], 2, "is there already"),
        (["write", "{t}/none.gguf", "-o", "{t}/p", *ID], 2, "missing_file"),
        (["write", "{m}", "-o", "{t}/p"], 2, "--model-id"),
    ],
)
def test_bad_input_is_one_line_and_a_code(
    cli: Cli, packages: Packages, twin: Twin, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    """What is wrong and what to do; nothing is left behind."""
    places = {"p": packages("qwen3").folder, "m": twin("qwen3"), "t": tmp_path}
    done = cli("package", *(argument.format(**places) for argument in arguments))
    assert done.code == code
    assert words in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def manifests(tmp_path: Path, packages: Packages, hub: Hub) -> Path:
    """Manifests with a row whose package is on the hub."""
    import shutil

    from tests.agent.conftest import ROOT

    folder = tmp_path / "manifests"
    shutil.copytree(ROOT / "manifests", folder)
    package = packages("qwen3")
    for path in package.folder.rglob("*.*"):
        hub.files[REPO, REVISION, path.relative_to(package.folder).as_posix()] = path.read_bytes()
    families = folder / "families.json"
    families.write_text("\n".join(_packaged(line, package) for line in families.read_text("utf-8").splitlines()) + "\n")
    return folder


def _packaged(line: str, package: Package) -> str:
    if not line.startswith('{"family": "deepseek3"'):
        return line
    data = (package.folder / FILE_NAME).read_bytes()
    row: dict[str, Any] = json.loads(line.rstrip(","))
    facts = {"size": len(data), "sha256": package.sha256}
    row["package"] = {"repo": REPO, "revision": REVISION, "selector": "Q8", "files": {FILE_NAME: facts}}
    return json.dumps(row) + ("," if line.endswith(",") else "")


def test_fetch_a_stage(cli: Cli, hub: Hub, manifests: Path, tmp_path: Path) -> None:
    """The paths of the manifest and of the stage's parts; what they make can be put together at once."""
    options = ("--source", f"hub:{hub.address}", "--store", tmp_path / "store", "--manifests", manifests)
    done = cli("fetch", "deepseek3", "--stage", "2:4", *options, "--json")
    assert done.code == 0, done.err
    (row,) = json.loads(done.out)
    assert row["stage"] == [2, 4]
    assert len(row["paths"]) == 4
    out = tmp_path / "stage.gguf"
    assert cli("package", "materialise", row["package"], "--stage", "2:4", "-o", out).code == 0
    again = cli("fetch", "deepseek3", "--stage", "2:4", *options)
    assert again.code == 0
    assert [Path(line).name for line in again.out.splitlines()] == [
        FILE_NAME,
        "metadata.gguf",
        "layer-002.gguf",
        "layer-003.gguf",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["deepseek3"], 2, "package-backed and never fetched whole"),
        (["deepseek3", "--stage", "x"], 2, "is no stage"),
        (["deepseek3", "--stage", "0:99"], 2, "the model has 8 layers"),
        (["qwen3-dense", "--stage", "0:3"], 2, "names no package"),
        (["--stage", "0:3"], 2, "nothing to fetch"),
        (["--stage", "0:3", "--leg", "x"], 2, "leave out --plan"),
        (["deepseek3", "--stage", "0:3", "--offline"], 4, "offline"),
    ],
)
def test_what_cannot_be_fetched_says_why(
    cli: Cli, hub: Hub, manifests: Path, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    """In one line, with the code of its cause."""
    options = ("--source", f"hub:{hub.address}", "--store", tmp_path / "store", "--manifests", manifests)
    done = cli("fetch", *arguments, *options)
    assert done.code == code
    assert words in done.err
