"""Usage: unpack.py ARTIFACTS FOLDER KEY. Unpacks the newest attempt's build and compares every file with the build's own list."""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

CONTENTS = "contents.json"


def newest(artifacts: Path) -> Path:
    """The tar of the highest attempt; the attempt is the last part of the artifact's name.

    actions/download-artifact gives each artifact a folder of its own, except when there is only one.

    Raises:
        ValueError: there is none.
    """
    if (artifacts / "build.tar").is_file():
        return artifacts / "build.tar"
    found = {int(path.parent.name.rpartition(".")[2]): path for path in artifacts.glob("*.[0-9]*/build.tar")}
    if not found:
        raise ValueError(f"no build in {artifacts}: the build job uploaded none, and nothing is compiled here")
    return found[max(found)]


def difference(folder: Path, listed: dict[str, Any], key: str) -> str:
    """What differs between `folder` and the build's list; empty if nothing does."""
    if listed.get("key") != key:
        return f"it answers to build key {listed.get('key')}, this leg wants {key}"
    found = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_symlink() or path.is_file()
    }
    found.pop(CONTENTS, None)
    named = {file["path"]: file for file in listed["files"]}
    if extra := sorted(found.keys() ^ named.keys()):
        return f"its list and its files differ: {', '.join(extra[:5])}"
    for name, path in found.items():
        file = named[name]
        if path.is_symlink():
            same = file.get("link") == path.readlink().as_posix()
        else:
            same = file.get("sha256") == hashlib.sha256(path.read_bytes()).hexdigest()
        if not same:
            return f"{name} is not what was packed"
    return "" if found else "it is empty"


def main(artifacts: str, folder: str, key: str) -> str:
    """Unpack; empty if the build is what the plan wants, else what is wrong."""
    target = Path(folder)
    try:
        with tarfile.open(newest(Path(artifacts))) as archive:
            archive.extractall(target, filter="data")
        listed = json.loads((target / CONTENTS).read_text(encoding="utf-8"))
        problem = difference(target, listed, key)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, tarfile.TarError) as error:
        problem = str(error) or type(error).__name__
    return f"the build cannot be used: {problem}" if problem else ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
