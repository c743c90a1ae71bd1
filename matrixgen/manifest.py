"""Load the manifest folder: six JSON files, checked against their schemas and against the rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrixgen import rules, schema
from matrixgen.battery import Batteries
from matrixgen.caches import Caches
from matrixgen.content import Manifest
from matrixgen.errors import ManifestInvalid, ManifestUnreadable
from matrixgen.family import Family
from matrixgen.findings import Finding
from matrixgen.pin import Pin
from matrixgen.quarantine import Quarantined
from matrixgen.runner import RunnerClass
from matrixgen.source import Document, parse, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILES", "Manifest", "check_manifest", "default_root", "load_manifest", "read_documents"]

FILES = ("families", "pin", "batteries", "runners", "caches", "quarantine")


def default_root() -> Path:
    """./manifests when it holds families.json, else the copy that came with the package."""
    here = Path("manifests")
    return here if (here / "families.json").is_file() else schema.packaged_root()


def read_documents(root: Path, replaced: Mapping[str, str] | None = None) -> dict[str, Document]:
    """All files as documents by name; a file that cannot be read becomes a document with a finding.

    `replaced` gives the text of files that shall not be read.
    """
    documents = {}
    for name in FILES:
        file = f"{name}.json"
        try:
            text = read_text(root / file) if replaced is None or name not in replaced else replaced[name]
            documents[name] = parse(file, text)
        except ManifestUnreadable as error:
            finding = Finding(
                id="MG001", severity="error", file=file, pointer="", line=0, message=error.problem, fix=error.fix
            )
            documents[name] = Document(name=file, text="", data=None, findings=(finding,))
    return documents


def check_manifest(
    root: Path, *, replaced: Mapping[str, str] | None = None, warnings: bool = True, today: str | None = None
) -> tuple[list[Finding], Manifest | None]:
    """(all findings, the manifest or None when one of them is an error).

    `replaced` as in read_documents. Without `warnings`, a manifest that has no error comes with no finding, sooner.
    With `today` (YYYY-MM-DD), quarantine that has expired is an error.
    """
    documents = read_documents(root, replaced)
    findings = [finding for document in documents.values() for finding in document.findings]
    for name, document in documents.items():
        if document.data is not None and not document.findings:
            findings += schema.check(document, schema.load_schema(schema.packaged_root(), name))
    if findings:
        return findings, None
    manifest = _build(root, {name: document.data for name, document in documents.items()})
    problems = rules.problems_of(manifest, today)
    wrong = any(problem.severity == "error" for problem in problems)
    findings = rules.located(problems, documents) if wrong or warnings else []
    return findings, None if wrong else manifest


def load_manifest(root: Path | None = None, *, today: str | None = None) -> Manifest:
    """The manifest of `root` (see default_root). With `today` (YYYY-MM-DD), quarantine that has expired is an error.

    Raises ManifestUnreadable when the folder holds no manifest, ManifestInvalid with all findings when it is wrong.
    """
    root = default_root() if root is None else Path(root)
    if not (root / "families.json").exists():
        raise ManifestUnreadable(f"no manifest in {root}: it has no families.json", "give its folder with --manifests")
    findings, manifest = check_manifest(root, warnings=False, today=today)
    if manifest is None:
        raise ManifestInvalid(findings, root)
    return manifest


def _build(root: Path, data: Mapping[str, Any]) -> Manifest:
    return Manifest(
        families=tuple(Family.from_row(row) for row in data["families"]["families"]),
        pin=Pin.from_json(data["pin"]),
        batteries=Batteries.from_json(data["batteries"]),
        runners=tuple(RunnerClass.from_json(entry) for entry in data["runners"]["runners"]),
        caches=Caches(
            prefix=data["caches"]["prefix"],
            largest_set_gb=data["caches"]["largest_set_gb"],
            budget_gb=data["caches"]["actions_cache_budget_gb"],
        ),
        quarantine=tuple(Quarantined.from_json(entry) for entry in data["quarantine"]["quarantine"]),
        root=root,
    )
