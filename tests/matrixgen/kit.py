"""What several test modules share: the fixed manifest, many families, receipts as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matrixgen.canonical import digest_of
from matrixgen.manifest import Manifest
from matrixgen.plan import Plan, build_plan

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FIXED = HERE / "golden" / "manifests"
#: Times of real runs, in seconds by lane, on two shared CPU cores.
TIMES = HERE / "measured.json"


def many(manifest: Manifest, count: int, notes: str = "") -> Plan:
    """A plan of `count` legs of made-up families."""
    base = manifest.family("mamba")
    families = tuple(base._replace(family=f"family-{n:05d}", notes=notes) for n in range(count))
    return build_plan(manifest._replace(families=families), event="llama-bump", tiers=[1], allow_empty=True)


def write_receipt(
    folder: Path, leg: str, times: dict[str, float], *, plan: str = "sha256:" + "0" * 64, **other: Any
) -> Path:
    """Write a receipt of `leg` in which lanes took so many seconds; `other` replaces keys before the digest is made."""
    body: dict[str, Any] = {
        "schema_version": 1,
        "leg": leg,
        "plan": plan,
        "subject": {"kind": "twin"},
        "lanes": [{"lane": name, "status": "pass", "seconds": seconds} for name, seconds in times.items()],
        "status": "pass",
        **other,
    }
    path = folder / leg / "receipt.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**body, "digest": digest_of(body)}), encoding="utf-8")
    return path


def measured(folder: Path) -> int:
    """Write all receipts of measured.json below `folder`; how many there are."""
    entries = json.loads(TIMES.read_text(encoding="utf-8"))
    for number, entry in enumerate(entries):
        write_receipt(folder / str(number), entry["leg"], entry["lanes"], subject={"kind": entry["subject"]})
    return len(entries)
