"""The folder of a build, new for each one or kept between builds, so that only what changed is compiled again.

A kept folder never decides what is built: its sources are made equal to those that are wanted, byte for byte, and its objects go
as soon as tools or flags differ.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agent.errors import BuildFailed, FileUnreadable

_MADE_WITH = "made-with.json"


@contextlib.contextmanager
def work_folder(kept: Path | None, temporary: Path, made_with: Mapping[str, str | Sequence[str]]) -> Iterator[Path]:
    """The folder to build in: `kept`, without objects of other tools or flags, or else `temporary`.

    Raises:
        BuildFailed: another build works there.
        FileUnreadable: it cannot be written.
    """
    if kept is None:
        yield temporary.resolve()
        return
    from filelock import FileLock, Timeout

    folder = kept.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=0)
        lock.acquire()
    except Timeout as error:
        raise BuildFailed(f"another build works in {kept}: wait for it, or give another folder with --work") from error
    except OSError as error:
        raise FileUnreadable(f"{kept} cannot be written ({error.strerror}): check path and permissions") from error
    with lock:
        stamp, wanted = folder / _MADE_WITH, json.dumps(made_with, sort_keys=True)
        same = stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted
        # libraries are always linked anew: one that is not made any more would be packed with the others
        old = folder / "build" / "bin" if same else folder / "build"
        if old.exists():
            shutil.rmtree(old)
        stamp.write_text(wanted, encoding="utf-8")
        yield folder


def settle(wanted: Path, target: Path) -> Path:
    """Make `target` hold exactly what `wanted` holds; returns it. A file that is the same keeps its time, another one is new.

    Raises:
        FileUnreadable: it cannot be written.
    """
    try:
        if not target.exists():
            shutil.move(wanted, target)
            return target
        names = {path.relative_to(wanted) for path in wanted.rglob("*")}
        for path in sorted(target.rglob("*"), reverse=True):
            if path.relative_to(target) not in names:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in sorted(names):
            _renew(wanted / name, target / name)
    except OSError as error:
        raise FileUnreadable(f"{target} cannot be written ({error.strerror}): remove it and build anew") from error
    return target


def _renew(wanted: Path, target: Path) -> None:
    if wanted.is_dir() and not wanted.is_symlink():
        if target.is_symlink() or not target.is_dir():
            target.unlink(missing_ok=True)
            target.mkdir()
        return
    if _same(wanted, target):
        return
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    part = target.with_name(f"{target.name}.part")
    shutil.copy2(wanted, part, follow_symlinks=False)
    os.utime(
        part, follow_symlinks=False
    )  # make tools compare times: what differs must be newer than what was made of it
    part.replace(target)


def _same(wanted: Path, target: Path) -> bool:
    if wanted.is_symlink() or target.is_symlink():
        return wanted.is_symlink() and target.is_symlink() and wanted.readlink() == target.readlink()
    if not target.is_file() or wanted.stat().st_mode != target.stat().st_mode:
        return False
    return filecmp.cmp(wanted, target, shallow=False)
