"""Stands in for `skippy-model-package`, which cannot be had here: it is a Rust program linked with a patched llama.cpp.

Only `preflight` does something. It really reads the manifest of a package, and really looks at its files: a missing, cut or
changed file is found. The report is printed; the exit code is 1 for a package that is not valid.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agent.prebuilt.standins.clap import Command, Flag, parse
from tests.agent.prebuilt.standins.toy import fault

COMMANDS = (
    Command("inspect", (), positional="MODEL"),
    Command("preflight", (Flag("--stages"), Flag("--verify-sha256", value="")), positional="PACKAGE"),
)


def main() -> int:
    """Run one command."""
    command, values = parse("skippy-model-package", "Write and check layer packages", COMMANDS, sys.argv[1:])
    if command != "preflight":
        return 1
    package = Path(values["PACKAGE"])
    text = (package / "model-package.json").read_bytes()
    manifest = json.loads(text)
    verify = "--verify-sha256" in values and fault() != "not-hashed"
    artifacts = [_look(package, role, None, entry, verify) for role, entry in manifest["shared"].items()]
    artifacts += [_look(package, "layer", entry["layer_index"], entry, verify) for entry in manifest["layers"]]
    issues = [
        {"severity": "error", "code": "artifact_invalid", "message": f"{entry['path']} is not whole", "remediation": ""}
        for entry in artifacts
        if not entry["present"] or False in (entry["size_matches_manifest"], entry["sha256_matches_manifest"])
    ]
    report = {
        "schema_version": 1,
        "package_path": str(package),
        "valid": not issues,
        "model_id": manifest["model_id"],
        "layer_count": manifest["layer_count"],
        "activation_width": manifest["activation_width"],
        "manifest_sha256": hashlib.sha256(text).hexdigest(),
        "checked_artifact_count": len(artifacts),
        "missing_artifact_count": sum(not entry["present"] for entry in artifacts),
        "issue_count": len(issues),
        "issues": [] if fault() == "hides-issues" else issues,
        "artifacts": artifacts,
        "stages": _stages(manifest["layer_count"], int(values.get("--stages", "1"))),
    }
    sys.stdout.write(json.dumps(report) + "\n")
    return 1 if issues else 0


def _look(package: Path, role: str, layer: int | None, entry: Mapping[str, Any], verify: bool) -> dict[str, Any]:
    path = package / entry["path"]
    present = path.is_file()
    return {
        "role": role,
        "layer_index": layer,
        "path": entry["path"],
        "present": present,
        "declared_artifact_bytes": entry["artifact_bytes"],
        "size_matches_manifest": path.stat().st_size == entry["artifact_bytes"] if present else None,
        "sha256_matches_manifest": hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]
        if present and verify
        else None,
    }


def _stages(layers: int, count: int) -> list[dict[str, Any]]:
    edges = [layers * place // count for place in range(count + 1)]
    return [
        {
            "stage_index": index,
            "layer_start": edges[index],
            "layer_end": edges[index + 1],
            "includes_embeddings": index == 0,
            "includes_output": index == count - 1,
            "missing_parts": [],
        }
        for index in range(count)
    ]


if __name__ == "__main__":
    sys.exit(main())
