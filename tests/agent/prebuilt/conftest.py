"""A folder of stand-ins, and the checks on a twin."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gguf import GGUFReader

from agent.header.layers import layer_kinds_from_metadata
from agent.header.reader import read_model_header
from agent.lanes.result import LaneResult
from agent.prebuilt.adapter import Dialect, probe
from agent.prebuilt.binaries import find_binaries
from agent.prebuilt.checks import CHECKS, run_checks
from agent.prebuilt.target import Bench, Target, contract_of
from matrixgen.manifest import Manifest
from tests.agent.conftest import ROOT

STANDINS = ("skippy-correctness", "skippy-server", "skippy-model-package")
LEGAL = {"qwen3-dense": (2, 3, 4, 6)}


def write_standin(folder: Path, name: str) -> Path:
    """An executable in `folder` that runs the stand-in for a binary."""
    folder.mkdir(parents=True, exist_ok=True)
    module = f"tests.agent.prebuilt.standins.{name.replace('-', '_')}"
    path = folder / name
    words = shlex.join([sys.executable, "-S", "-m", module])
    path.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {words} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def dialect(tmp_path_factory: pytest.TempPathFactory) -> Dialect:
    """What the stand-ins accept, asked once."""
    folder = tmp_path_factory.mktemp("bin")
    for name in STANDINS:
        write_standin(folder, name)
    return probe(find_binaries(folder))


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """A folder with the three stand-ins."""
    for name in STANDINS:
        write_standin(tmp_path / "bin", name)
    return tmp_path / "bin"


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the stand-ins fail in one way."""
    return lambda name: monkeypatch.setenv("STANDIN_FAULT", name)


@dataclass
class Lab:
    """Runs checks of the stand-ins on the twin of a family."""

    bin_dir: Path
    folder: Path
    manifest: Manifest
    twin: Callable[[str], Path]
    dialect: Dialect
    seconds: float = 60
    startup_seconds: float = 60
    changes: dict[str, object] = field(default_factory=dict)

    def target(self, family: str = "qwen3-dense") -> Target:
        """The twin of a family, as it is tested."""
        model = self.twin(family)
        header = read_model_header(model)
        kinds = layer_kinds_from_metadata(header)
        assert kinds is not None
        layers = header.trunk_layers
        return Target(
            model=model,
            header=header,
            family=self.manifest.family(family),
            contract=contract_of(layers, LEGAL.get(family, tuple(range(1, layers))), kinds),
            backend=str(self.changes.get("backend", "cpu")),
            width=8,
            sha256="0" * 64,
            package=self.changes.get("package"),  # type: ignore[arg-type]
        )

    def bench(self) -> Bench:
        """The stand-ins."""
        tools = find_binaries(self.bin_dir)
        return Bench(
            tools=tools,
            dialect=self.dialect,
            folder=self.folder,
            seconds=self.seconds,
            startup_seconds=self.startup_seconds,
        )

    def run(self, name: str, family: str = "qwen3-dense") -> LaneResult:
        """The result of one check."""
        (result,) = run_checks((CHECKS[name],), self.bench(), self.target(family))
        return result


@pytest.fixture
def lab(
    bin_dir: Path,
    tmp_path: Path,
    manifest: Manifest,
    twin: Callable[[str], Path],
    dialect: Dialect,
    monkeypatch: pytest.MonkeyPatch,
) -> Lab:
    """A lab, with the bytes of state of the twin that the stand-in reports, by a formula of its own."""
    found = Lab(bin_dir, tmp_path / "kept", manifest, twin, dialect)
    set_bytes(monkeypatch, tmp_path, twin("qwen3-dense"))
    return found


def set_bytes(monkeypatch: pytest.MonkeyPatch, folder: Path, model: Path) -> None:
    """Tell the stand-in what a state weighs, from the file as gguf-py reads it."""
    reader = GGUFReader(model)

    def value(suffix: str) -> list[int]:
        (name,) = [name for name in reader.fields if name.endswith(suffix)] or [""]
        if not name:
            return []
        contents = reader.fields[name].contents()
        return list(contents) if isinstance(contents, list) else [int(contents)]

    (layers,) = value(".block_count")
    heads = value(".attention.head_count_kv") or [0]
    heads = heads * layers if len(heads) == 1 else heads
    (key,) = value(".attention.key_length") or [0]
    if not key and value(".attention.head_count") and value(".attention.head_count")[0]:
        key = value(".embedding_length")[0] // value(".attention.head_count")[0]
    recurrent = 0
    if value(".ssm.inner_size"):  # of a Mamba layer: convolution window and state, f32, with a frame of 24 bytes
        (inner,), (state,), (kernel,) = value(".ssm.inner_size"), value(".ssm.state_size"), value(".ssm.conv_kernel")
        recurrent = 24 + 4 * ((kernel - 1) * inner + state * inner)
    table = {
        "kv": [2 * 2 * count * key for count in heads],
        "recurrent": [0 if count else recurrent for count in heads],
        "frame": 28,
    }
    path = folder / "bytes.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    monkeypatch.setenv("STANDIN_BYTES", str(path))
