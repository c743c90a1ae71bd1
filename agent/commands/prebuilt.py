"""`skippy-agent prebuilt`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agent.build.archive import lend_build
from agent.build.record import BuildRecord
from agent.commands.folders import twin_folder
from agent.errors import UsageError
from agent.lanes.result import LaneResult, Status
from agent.prebuilt.checks import CHECKS
from agent.prebuilt.leg import Request, certify_binaries
from agent.receipt.receipt import Receipt
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from matrixgen.family import Family
from matrixgen.manifest import load_manifest

_EXIT_CODES = {Status.PASS: 0, Status.FAIL: 1, Status.INFRA: 4}


@dataclass(frozen=True, kw_only=True)
class PrebuiltOptions:
    """What the user asked for; see `skippy-agent prebuilt --help`."""

    family: str
    model: Path | None
    twin: bool
    bin_dir: Path | None
    build: Path | None
    checks: tuple[str, ...]
    cuts: tuple[int, ...]
    backend: str
    width: int | None
    package: Path | None
    timeout: float
    startup_timeout: float
    tokens: int
    receipts: Path
    manifests: Path | None
    as_json: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From the options of the command line.

        Raises:
            UsageError: they do not go together.
        """
        request = cls(**options)
        if (request.model is None) is not request.twin:
            raise UsageError("say what to test: a file with --model, or --twin for a tiny random model; not both")
        if (request.bin_dir is None) is (request.build is None):
            raise UsageError("say which binaries to test: --build for an archive, or --bin-dir for a folder; not both")
        if unknown := [name for name in request.checks if name not in CHECKS]:
            raise UsageError(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
        return request


def run(options: PrebuiltOptions) -> int:
    """Test the binaries; returns the exit code."""
    manifest = load_manifest(options.manifests)
    family = manifest.family(options.family)
    model, recipe = _model(options, family)
    with _binaries(options) as (folder, record):
        commit = record.commit if record else None
        if commit is not None and commit != manifest.pin.commit:
            sys.stderr.write(
                f"note: the build is of llama.cpp {commit}, the pin of the manifests is {manifest.pin.commit}\n"
            )
        receipt = certify_binaries(
            Request(
                family=family,
                pin=manifest.pin,
                model=model,
                recipe=recipe,
                folder=folder,
                commit=commit,
                build_key=record.key if record else "",
                names=options.checks,
                cuts=tuple(sorted(set(options.cuts))),
                backend=options.backend,
                width=options.width,
                package=options.package,
                receipts=options.receipts,
                seconds=options.timeout,
                startup_seconds=options.startup_timeout,
                tokens=options.tokens,
            ),
            on_result=lambda result: _report_lane(result, as_json=options.as_json),
            on_note=lambda note: print(f"note: {note}", file=sys.stderr),  # noqa: T201 - progress
        )
    _report(receipt, options)
    return _EXIT_CODES[receipt.status]


def _model(options: PrebuiltOptions, family: Family) -> tuple[Path, str | None]:
    if options.model is not None:
        return options.model, None
    recipe = recipe_for(family.arch or "", family=family.family)
    return build_twin(recipe, twin_folder()), recipe.digest


@contextlib.contextmanager
def _binaries(options: PrebuiltOptions) -> Iterator[tuple[Path, BuildRecord | None]]:
    """The folder of the binaries; a build is verified before a byte of it is used."""
    if options.build is not None:
        with lend_build(options.build) as (folder, record):
            yield folder, record
    elif options.bin_dir is not None:
        yield options.bin_dir, None


def _report_lane(result: LaneResult, *, as_json: bool) -> None:
    stream = sys.stderr if as_json else sys.stdout
    stream.write(f"{result.status:5} {result.lane}: {result.comparisons} comparisons: {result.summary}\n")
    for problem in result.problems[1:5]:
        stream.write(f"      {problem}\n")
    stream.flush()


def _report(receipt: Receipt, options: PrebuiltOptions) -> None:
    if options.as_json:
        sys.stdout.write(json.dumps(receipt.to_json()) + "\n")
        return
    passed = sum(lane.status == Status.PASS for lane in receipt.lanes)
    sys.stdout.write(
        f"{receipt.status}: {receipt.leg}: {passed} of {len(receipt.lanes)} lanes, {receipt.comparisons} comparisons, "
        f"{receipt.seconds:.1f} s; receipt, reports and logs in {options.receipts / receipt.leg}\n"
    )
