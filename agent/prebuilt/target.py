"""What is tested with what: the model and its cuts, the binaries and where their logs go."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.engine.contract import Contract, Crossing, Cut
from agent.errors import InfraError
from agent.header.model import Header, SkippedArray
from agent.layer_kind import LayerKind
from agent.prebuilt.adapter import Dialect
from agent.prebuilt.binaries import Toolset
from agent.prebuilt.processes import environment_for, tail_of
from matrixgen.family import Family

TOKENS = 48  # of an answer, unless told otherwise
_ALL_LAYERS = 999
_OFFLOADED = re.compile(r"offloaded (\d+)/\d+ layers")  # llama.cpp's own line, the same since 2023


@dataclass(frozen=True, kw_only=True)
class Target:
    """The model under test.

    Attributes:
        model: path of the GGUF (its first shard).
        header: what it says.
        family: the manifest row.
        contract: where it may be cut.
        backend: cpu, cuda, metal, vulkan or rocm.
        package: folder of its layer package; None where there is none.
        width: elements of an activation at a cut.
        sha256: of the file `model`.
    """

    model: Path
    header: Header
    family: Family
    contract: Contract
    backend: str
    width: int
    sha256: str
    package: Path | None = None

    @property
    def layers(self) -> int:
        """Layers of the trunk."""
        return self.contract.n_layer

    @property
    def gpu_layers(self) -> int:
        """Layers to put on the accelerator."""
        return 0 if self.backend == "cpu" else _ALL_LAYERS

    @property
    def model_id(self) -> str:
        """A name in the form that the binaries want; it says nothing of the architecture, from which they might guess."""
        return "skippy-ci/model:local"

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens; None where the header does not list them."""
        tokens = self.header.metadata.get("tokenizer.ggml.tokens")
        return tokens.length if isinstance(tokens, SkippedArray) else None


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one run of a program works: `kept` holds its report and logs, `scratch` is removed afterwards."""

    kept: Path
    scratch: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """With what is tested.

    Attributes:
        tools, dialect: the binaries and what they accept.
        folder: where reports and logs are kept.
        seconds: that one program may run.
        startup_seconds: that a server may take until it answers.
        tokens: of each answer that is compared.
    """

    tools: Toolset
    dialect: Dialect
    folder: Path
    seconds: float
    startup_seconds: float
    tokens: int = TOKENS

    @contextlib.contextmanager
    def place(self, backend: str, *names: str) -> Iterator[Place]:
        """A place for one run; its folder is named by `names`.

        Raises:
            InfraError: it cannot be made.
        """
        kept = self.folder.joinpath(*names)
        try:
            kept.mkdir(parents=True, exist_ok=True)
            for old in kept.iterdir():  # of an earlier run: no report of it may be taken for one of this
                if old.is_file():
                    old.unlink()
            scratch = tempfile.TemporaryDirectory(prefix="skippy-", ignore_cleanup_errors=True)
        except OSError as error:
            raise InfraError(
                f"{kept} cannot be used ({error.strerror}): choose another folder with --receipts"
            ) from error
        with scratch as name:
            yield Place(kept=kept, scratch=Path(name), environment=environment_for(backend, Path(name)))


def contract_of(layers: int, legal: tuple[int, ...], kinds: tuple[LayerKind, ...]) -> Contract:
    """A contract of which only the legal cuts and the kinds of layers are known."""
    crossing = (Crossing("activation", 0, "f32", 0),)
    cuts = tuple(
        Cut(
            layer, crossing if layer in legal else (), tokens=False, forbidden_by=() if layer in legal else ("unknown",)
        )
        for layer in range(1, layers)
    )
    return Contract(state=kinds, caches=((),) * layers, cuts=cuts)


def offloaded_layers(folder: Path) -> int:
    """The largest number of layers that a log in `folder` says were put on an accelerator; 0 where none says so."""
    logs = [path for path in folder.rglob("*") if path.suffix in (".out", ".err", ".log")]
    return max((int(match[1]) for path in logs for match in _OFFLOADED.finditer(tail_of(path))), default=0)
