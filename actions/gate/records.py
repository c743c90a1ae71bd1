"""Usage: records.py ARTIFACTS FOLDER. Takes each build's record, of several attempts the newest; makes no folder for none."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def newest(artifacts: Path) -> dict[str, Path]:
    """Name of the artifact without its attempt -> its folder, of the highest attempt.

    actions/download-artifact gives each artifact a folder of its own, except when there is only one.
    """
    found: dict[str, tuple[int, Path]] = {}
    for path in artifacts.glob("skippy-record.*") if artifacts.is_dir() else ():
        name, _, attempt = path.name.rpartition(".")
        found[name] = max(found.get(name, (0, path)), (int(attempt), path))
    if not found and artifacts.is_dir() and any(artifacts.iterdir()):
        return {"skippy-record": artifacts}
    return {name: path for name, (_, path) in found.items()}


def main(artifacts: str, folder: str) -> str:
    """Copy; empty if done, else what is wrong."""
    target = Path(folder)
    shutil.rmtree(target, ignore_errors=True)
    try:
        for name, path in newest(Path(artifacts)).items():
            shutil.copytree(path, target / name)
    except (OSError, ValueError) as error:
        return f"the records of the builds cannot be used: {error}"
    return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
