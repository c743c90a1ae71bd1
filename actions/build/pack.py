"""Usage: pack.py FOLDER TAR KEY. Packs a build with a list of its files, their digests and the build key that it answers to."""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from pathlib import Path

CONTENTS = "contents.json"


def contents(folder: Path, key: str) -> dict[str, object]:
    """What `folder` holds: regular files with size and sha256, and links to files inside of it.

    Raises:
        ValueError: the folder is empty, has a list already, holds a special file, or a link that leads out of it.
    """
    files: list[dict[str, object]] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            if not path.resolve().is_relative_to(folder.resolve()) or not path.exists():
                raise ValueError(f"the link {name} leads out of the build, or nowhere")
            files.append({"path": name, "link": path.readlink().as_posix()})
        elif path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files.append({"path": name, "size": path.stat().st_size, "sha256": digest})
        elif not path.is_dir():
            raise ValueError(f"{name} is neither a file nor a link")
    if any(file["path"] == CONTENTS for file in files):
        raise ValueError(f"the build script left a {CONTENTS}; that name is taken by the list of the build")
    if not files:
        raise ValueError("the build script left nothing: an empty build proves nothing")
    return {"schema_version": 1, "key": key, "files": files}


def main(folder: str, tar: str, key: str) -> str:
    """Pack; empty if done, else what is wrong."""
    root = Path(folder)
    try:
        listed = contents(root, key)
    except (OSError, ValueError) as error:
        return f"cannot pack the build: {error}"
    (root / CONTENTS).write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(root, arcname=".")
    return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
