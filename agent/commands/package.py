"""`skippy-agent package`: write a layer package, validate one, put a stage of one together."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agent.errors import UsageError
from agent.header.reader import read_model_header
from agent.header.text import printable
from agent.package.manifest import FILE_NAME, Package, read_package
from agent.package.stage import StageParts, parse_range, stage_parts
from agent.package.write import Identity
from agent.store.space import shown_size

if TYPE_CHECKING:
    from agent.package.container import Advance


@dataclass(frozen=True, kw_only=True)
class WriteRequest:
    """What the user said; see `skippy-agent package write --help`."""

    model: Path
    output: Path
    model_id: str
    source_repo: str | None
    source_revision: str | None
    source_file: str | None
    projectors: tuple[Path, ...]
    abi_version: str
    as_json: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From the options of the command line."""
        return cls(**options)

    def identity(self) -> Identity:
        """What the manifest says of the model."""
        return Identity(
            model_id=self.model_id,
            repo=self.source_repo,
            revision=self.source_revision,
            file=self.source_file,
            abi_version=self.abi_version,
            created=_created(),
        )


def run_write(request: WriteRequest) -> int:
    """Write a package and compare it with the model; returns the exit code."""
    from agent.package.validate import validate
    from agent.package.write import write_package

    header, folder = read_model_header(request.model), request.output
    with _progress(request.model.name, "packaging", header.file_size) as advance:
        package = write_package(request.model, folder, request.identity(), request.projectors, advance)
    with _progress(folder.name, "comparing", 2 * header.file_size) as advance:
        found = validate(package, header, advance)
    facts = _facts(package) | {"valid": found.valid, "problems": found.problems, "tensors": found.tensors}
    if request.as_json:
        _print_json(facts)
    else:
        _print_problems(found.problems)
        size = shown_size(facts["bytes"])
        sys.stdout.write(
            f"{folder}: {facts['layers']} layers, {found.tensors} tensors, {facts['parts']} parts, {size}\n"
            f"{FILE_NAME}: {facts['manifest_bytes']} bytes, sha256 {package.sha256}\n"
        )
    return 0 if found.valid else 1


def run_validate(folder: Path, model: Path | None, *, as_json: bool) -> int:
    """Check a package, against the model where it is given; returns 0 where nothing is wrong, else 1."""
    from agent.package.validate import validate

    package = read_package(folder)
    source = read_model_header(model) if model else None
    total = sum(part.artifact_bytes for part in package.files) + (source.file_size if source else 0)
    with _progress(package.folder.name, "validating", total) as advance:
        found = validate(package, source, advance)
    if as_json:
        _print_json(_facts(package) | {"valid": found.valid} | asdict(found))
        return 0 if found.valid else 1
    _print_problems(found.problems)
    for note in found.notes:
        sys.stdout.write(f"note: {printable(note)}\n")
    compared = f", {shown_size(found.bytes_compared)} compared with the model" if source else ""
    verdict = (
        f"{package.layer_count} layers, {found.tensors} tensors, each owned once{compared}; {found.checks} checks: it holds"
        if found.valid
        else f"{found.checks} checks, {len(found.problems)} problems: it does not hold"
    )
    sys.stdout.write(f"{package.folder}: {verdict}\n")
    return 0 if found.valid else 1


def run_materialise(folder: Path, stage: str, out: Path, *, stand_ins: bool, as_json: bool) -> int:
    """Put a stage together; returns the exit code."""
    from agent.package.materialise import materialise

    start, end = parse_range(stage)
    package = read_package(folder)
    parts = stage_parts(package, start, end)
    if out.resolve().is_relative_to(package.folder.resolve()):
        raise UsageError(f"{out} lies in the package, which holds its own files only: name another place")
    with _progress(out.name, "putting together", 2 * parts.size) as advance:
        made = materialise(package, parts, out, stand_ins=stand_ins, advance=advance)
    if as_json:
        facts = asdict(made) | {"path": str(made.path), "manifest_sha256": package.sha256, "stage": _stage(parts)}
        _print_json(facts)
        return 0
    others = f", {made.stand_ins} of other stages as zeros" if stand_ins else ""
    sys.stdout.write(f"{made.path}: stage {parts}, {made.tensors} tensors{others}, {shown_size(made.size)}\n")
    if made.sha256:
        sys.stdout.write(f"sha256 {made.sha256}\n")
    return 0


def _created() -> int:
    """Seconds since 1970: SOURCE_DATE_EPOCH, so that a package can be made again byte for byte, else now."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(text) if text.isdecimal() else int(time.time())


def _facts(package: Package) -> dict[str, Any]:
    return {
        "folder": str(package.folder),
        "manifest_sha256": package.sha256,
        "manifest_bytes": (package.folder / FILE_NAME).stat().st_size,
        "model_id": package.model_id,
        "layers": package.layer_count,
        "parts": len(package.files),
        "bytes": sum(part.artifact_bytes for part in package.files),
    }


def _stage(parts: StageParts) -> dict[str, Any]:
    return {
        "start": parts.start,
        "end": parts.end,
        "layers": list(parts.layers),
        "tied": parts.tied,
        "parts": [part.path for part in parts.parts],
        "bytes": parts.size,
    }


@contextlib.contextmanager
def _progress(name: str, what: str, total: int) -> Iterator[Advance]:
    """A bar or now and then a line on standard error."""
    from agent.reporters.transfers import show_transfers

    with show_transfers(sys.stderr) as progress:
        progress.begin(name, what, 0, total)
        yield lambda count: progress.advance(name, count)
        progress.end(name)


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        sys.stdout.write(f"WRONG: {printable(problem)}\n")


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
