"""From a checkout and a patch queue to a build: sources, libraries, layout, record."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.build.archive import members_of, pack, record_bytes
from agent.build.headers import layout_of_checkout
from agent.build.make import Recipe, make_libraries, toolchain
from agent.build.patches.queue import QueuedPatch, queue_digest
from agent.build.record import LIBRARIES, RECORD, BuildRecord
from agent.build.sources import apply_all, copy_checkout, fetch_commit
from agent.build.system import check_backend, needed_by, system_of_build
from agent.build.ticket import BuildTicket
from agent.build.work import settle, work_folder
from agent.errors import BuildFailed, FileUnreadable


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What to build.

    Attributes:
        checkout: a llama.cpp checkout; None to fetch `commit`.
        commit: the commit that is wanted; None to take what the checkout is of.
        queue: patches, in order.
        recipe: backend and flags.
        key: build key of the plan; empty without one.
        output: an archive, if its name ends in `.tar`; else a folder.
        work: folder whose objects an earlier build left and this one may use; None to begin with nothing.
    """

    checkout: Path | None
    commit: str | None
    queue: tuple[QueuedPatch, ...]
    recipe: Recipe
    key: str
    output: Path
    work: Path | None = None


def build(request: BuildRequest, tell: Callable[[str], None]) -> BuildRecord:
    """Build and write the result; nothing is left at `output` unless all went well.

    Raises:
        BuildFailed: the sources are not those that are wanted, a patch does not apply, or cmake failed.
        FileUnreadable: the result cannot be written.
    """
    tools = toolchain(request.recipe)
    made_with = {**tools, "flags": request.recipe.flags}
    with (
        tempfile.TemporaryDirectory(prefix="skippy-build-") as temporary,
        work_folder(request.work, Path(temporary), made_with) as work,
    ):
        fresh, folder = Path(temporary) / "sources", Path(temporary) / "result"
        commit = _take_sources(request, fresh)
        if request.queue:
            apply_all(request.queue, fresh)
        sources = settle(fresh, work / "llama.cpp")
        layout = replace(layout_of_checkout(sources), source="the headers of the build")
        make_libraries(sources, work / "build", folder / LIBRARIES, request.recipe, tell)
        libraries = [path for path in sorted((folder / LIBRARIES).glob("lib*")) if not path.is_symlink()]
        brought = frozenset(path.name for path in (folder / LIBRARIES).iterdir())
        needed = needed_by(libraries, brought)
        check_backend(request.recipe.backend, brought, needed)
        record = BuildRecord(
            key=request.key,
            commit=commit,
            patches=tuple((patch.name, patch.sha256) for patch in request.queue),
            patch_digest=queue_digest(request.queue) if request.queue else "",
            backend=request.recipe.backend,
            system=system_of_build(libraries),
            toolchain=tools,
            flags=request.recipe.flags,
            layout=layout,
            needed=needed,
            members=members_of(folder),
        )
        _write(record, folder, request.output)
    return record


def _take_sources(request: BuildRequest, target: Path) -> str | None:
    if request.checkout is None:
        if request.commit is None:
            raise BuildFailed("no sources: give a checkout with --llama-src, or a plan whose pin is fetched")
        fetch_commit(request.commit, target)
        return request.commit
    found = copy_checkout(request.checkout, target)
    if found and request.commit and found != request.commit:
        raise BuildFailed(f"{request.checkout} is at {found}, wanted is {request.commit}: check that commit out")
    return found or request.commit


def _write(record: BuildRecord, folder: Path, output: Path) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.suffix == ".tar":
            pack(folder, record, output)
            if record.key:
                BuildTicket.of(output, record.key).write(output.parent)
            return
        output.mkdir(exist_ok=True)
        if (output / LIBRARIES).exists():
            raise BuildFailed(f"{output / LIBRARIES} exists: a build never mixes with an older one; remove it first")
        part = output / f".{LIBRARIES}.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(folder / LIBRARIES, part, symlinks=True)
        (output / RECORD).write_bytes(record_bytes(record))
        part.rename(output / LIBRARIES)
    except OSError as error:
        raise FileUnreadable(f"{output} cannot be written ({error.strerror or error}): check path and space") from error
