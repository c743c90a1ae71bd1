"""`skippy-agent build`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agent.build.build import BuildRequest, build
from agent.build.make import Recipe
from agent.build.patches.queue import QueuedPatch, read_queue
from agent.errors import BuildFailed, UsageError
from matrixgen.leg import Plan
from matrixgen.plan import read_plan


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What the user asked for; see `skippy-agent build --help`."""

    llama_src: Path | None
    patches: Path | None
    plan: Path | None
    key: str | None
    backend: str | None
    commit: str | None
    cmake_args: tuple[str, ...]
    jobs: int
    work: Path | None
    output: Path
    as_json: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From the options of the command line.

        Raises:
            UsageError: they do not go together.
        """
        request = cls(**options)
        if bool(request.plan) != bool(request.key):
            raise UsageError("--plan and --key go together: the key says which build of the plan this is")
        if not request.plan and not request.backend:
            raise UsageError("say what to build with --backend, or give a plan and a key")
        if not (request.plan or request.llama_src or request.commit):
            raise UsageError("no sources: give --llama-src, --commit or --plan")
        if strange := [text for text in request.cmake_args if not text.startswith("-D")]:
            raise UsageError(f"--cmake-arg {strange[0]}: only definitions such as -DNAME=VALUE are taken")
        return request


def run(options: BuildOptions) -> int:
    """Build; returns the exit code."""
    queue = read_queue(options.patches) if options.patches else ()
    commit, backend = options.commit, options.backend
    if options.plan:
        plan = read_plan(options.plan)
        backend = _backend(plan, options)
        commit = plan.pin.commit
        _require_queue(plan, queue)
    request = BuildRequest(
        checkout=options.llama_src,
        commit=commit,
        queue=queue,
        recipe=Recipe(backend=backend or "", extra=options.cmake_args, jobs=options.jobs),
        key=options.key or "",
        output=options.output,
        work=options.work,
    )
    record = build(request, lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201 - progress
    if options.as_json:
        sys.stdout.write(json.dumps({"output": str(options.output), **record.summary()}) + "\n")
    else:
        sys.stdout.write(
            f"{options.output}: llama.cpp {record.commit or 'of unknown commit'}, {len(record.patches)} patches, "
            f"{record.backend}, {len(record.members)} members\n"
        )
    return 0


def _backend(plan: Plan, options: BuildOptions) -> str:
    for entry in plan.builds:
        if entry.key == options.key:
            if options.backend and options.backend != entry.backend:
                raise UsageError(f"the key is of a build for {entry.backend}, and --backend says {options.backend}")
            return entry.backend
    raise UsageError(f"the plan has no build with the key {options.key}: take one of `matrixgen keys`")


def _require_queue(plan: Plan, queue: tuple[QueuedPatch, ...]) -> None:
    wanted = [(patch.name, patch.sha256) for patch in plan.pin.patches]
    found = [(patch.name, patch.sha256) for patch in queue]
    if wanted == found:
        return
    if not queue:
        raise BuildFailed(f"the plan's pin has {len(wanted)} patches: give their folder with --patches")
    for place, (ours, theirs) in enumerate(zip(found, wanted, strict=False), 1):
        if ours != theirs:
            what = "has other bytes" if ours[0] == theirs[0] else f"is {ours[0]} here"
            raise BuildFailed(
                f"patch {place} of the pin, {theirs[0]}, {what}: the queue is not the one that was planned"
            )
    raise BuildFailed(
        f"the pin has {len(wanted)} patches and the folder {len(found)}: the queue is not the planned one"
    )
