"""Real models, the command line, and a look at the processes that are started."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from agent.certify import Options
from agent.commands.folders import twin_folder
from agent.contracts import load_contracts
from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.header.reader import read_model_header
from agent.lanes.subject import Expectations, Subject
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from matrixgen.family import Family
from matrixgen.leg import Leg, Plan
from matrixgen.manifest import Manifest, load_manifest
from matrixgen.plan import build_plan

ROOT = Path(__file__).resolve().parents[2]

# as in the children of a real run, and before llama.cpp is loaded: waiting threads sleep
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# no test depends on how fast the machine is; the same examples every time where a red must mean something
settings.register_profile(
    "agent", deadline=None, max_examples=200 if os.environ.get("CI") else 40, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("agent")

# families whose twins are small, one of each way to keep state
SMALL = ("qwen3-dense", "lfm2", "rwkv7", "glm47-flash")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a command gave back."""

    code: int
    out: str
    err: str


T = TypeVar("T")
Cli = Callable[..., Result]
Subjects = Callable[[str], Subject]
Legs = Callable[..., Leg]


@pytest.fixture(scope="session")
def manifest() -> Manifest:
    """The manifest of this repository."""
    return load_manifest(ROOT / "manifests")


@pytest.fixture(scope="session")
def twin() -> Callable[[str], Path]:
    """Build the twin of a family or of an architecture; kept in the user's cache, so that it is built once."""
    families = {family.family: family for family in load_manifest(ROOT / "manifests").families}

    def build(name: str) -> Path:
        architecture = families[name].arch or name if name in families else name
        return build_twin(recipe_for(architecture, family=name), twin_folder())

    return build


def changed(value: T, **fields: Any) -> T:
    """A copy of a frozen value with other fields, be it a dataclass or a named tuple."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **fields)
    copy: T = value._replace(**fields)  # type: ignore[attr-defined]
    return copy


def row_of(manifest: Manifest, name: str) -> Family:
    """The row of a family; for an architecture that no row is called after, a row made for it."""
    if any(family.family == name for family in manifest.families):
        return manifest.family(name)
    return changed(manifest.family("qwen3-dense"), family=name, arch=name)


@pytest.fixture(scope="session")
def subjects(manifest: Manifest, twin: Callable[[str], Path]) -> Iterator[Subjects]:
    """Load the twin of a family, or of an architecture without one, in this process, once."""
    loaded: dict[str, Subject] = {}
    contracts = load_contracts(manifest.root)

    def load(family: str) -> Subject:
        if family not in loaded:
            for other in loaded.values():  # more than a hundred twins may be loaded at once
                other.model.free_spares()
            row, path = row_of(manifest, family), twin(family)
            recipe = recipe_for(row.arch or "", family=row.family)
            recorded = contracts.get(row.arch or "")
            expectations = Expectations(family=row, random_weights=True, recorded=recorded, twin=recipe.name)
            loaded[family] = Subject(Model(path, choose_device("cpu")), read_model_header(path), expectations, 1)
        return loaded[family]

    yield load
    for subject in loaded.values():
        subject.close()


@pytest.fixture(scope="session")
def plans(manifest: Manifest) -> Callable[..., Plan]:
    """Plan families on the CPU, on twins unless told otherwise."""

    def plan(*families: str, subject: str = "twin", event: str = "pull-request", tiers: Sequence[int] = ()) -> Plan:
        return build_plan(manifest, event=event, families=families, tiers=tiers, backends=("cpu",), subject=subject)

    return plan


@pytest.fixture(scope="session")
def legs(plans: Callable[..., Plan]) -> Legs:
    """The leg of one family, with the given lanes or with all that it owes."""

    def leg(family: str, *lanes: str, subject: str = "twin", event: str = "pull-request") -> Leg:
        (found,) = plans(family, subject=subject, event=event).legs
        kept = tuple(lane for lane in found.lanes if not lanes or lane.name in lanes)
        return changed(found, lanes=kept)

    return leg


@pytest.fixture
def options(tmp_path: Path, manifest: Manifest) -> Options:
    """Run here, with receipts in a folder of the test."""
    return Options(receipts=tmp_path / "receipts", twins=twin_folder(), contracts=load_contracts(manifest.root))


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Call the command line in this process, as its console script does."""
    from agent import cli as module

    monkeypatch.chdir(ROOT)

    def call(*arguments: str | Path) -> Result:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["skippy-agent", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            module.main()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return Result(code=int(stop.value.code or 0), out=captured.out, err=captured.err)

    return call


@pytest.fixture
def process() -> Cli:
    """Call the command line in a process of its own."""

    def call(*arguments: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> Result:
        done = subprocess.run(command_line(*arguments), cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr + done.stdout
        return Result(code=done.returncode, out=done.stdout, err=done.stderr)

    return call


def command_line(*arguments: str | Path) -> list[str]:
    """The argument list that starts skippy-agent."""
    return [sys.executable, "-c", "from agent.cli import main; main()", *map(str, arguments)]


_started: list[list[str]] = []
_watching: list[bool] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event == "subprocess.Popen":
        _started.append([str(word) for word in arguments[1]])


sys.addaudithook(_watch)  # cannot be removed again, so it looks only while a test asks


@pytest.fixture
def children() -> Iterator[list[list[str]]]:
    """The argument lists of all processes that this one starts during the test."""
    _started.clear()
    _watching.append(True)
    with contextlib.ExitStack() as stack:
        stack.callback(_watching.clear)
        yield _started
