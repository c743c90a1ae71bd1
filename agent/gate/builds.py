"""What each build holds, by its key: so that the libraries which a leg ran can be traced to the build that the plan asked for.

A receipt names a build key because the plan does; only the digests of the libraries say what really ran. A list is the record
of `skippy-agent build`, ``build.json`` (``{"key": ..., "members": [{"path": ..., "sha256": ...}]}``), or, for the files of
another builder, the ``contents.json`` that the action packs (``{"key": ..., "files": [...]}``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from agent.errors import BuildsUnreadable
from agent.gate.collect import read_bounded

_LISTS = {"build.json": "members", "contents.json": "files"}
MAX_BYTES = 16 * 2**20
MAX_BUILDS = 500

Builds = Mapping[str, frozenset[str]]


def read_builds(folder: Path) -> Builds:
    """Build key -> sha256 of every file of the build, from all lists below `folder`.

    Raises:
        BuildsUnreadable: there is none, one is not such a list, or two lists of one key differ.
    """
    found: dict[str, frozenset[str]] = {}
    paths = sorted(path for name in _LISTS for path in folder.rglob(name))
    if not paths or len(paths) > MAX_BUILDS:
        names = " or ".join(_LISTS)
        raise BuildsUnreadable(f"{folder} holds {len(paths)} lists of builds ({names}): give those of one run")
    for path in paths:
        key, digests = _read(path)
        if found.setdefault(key, digests) != digests:
            raise BuildsUnreadable(f"{path} and another list of build {key[:100]} differ: give the lists of one run")
    return found


def _read(path: Path) -> tuple[str, frozenset[str]]:
    try:
        data = json.loads(read_bounded(path, MAX_BYTES))
        files = data[_LISTS[path.name]]
        key, digests = data["key"], frozenset(file["sha256"] for file in files if file.get("sha256"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BuildsUnreadable(f"{path} is no list of a build: {error}") from error
    if not isinstance(key, str) or not key or not digests or not all(isinstance(digest, str) for digest in digests):
        raise BuildsUnreadable(f"{path} is no list of a build: it has no key, or no file with a sha256")
    return key, digests
