"""A finding: one thing wrong in a manifest, with a stable id, the place, the reason and the fix."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]


class Finding(NamedTuple):
    """One finding.

    `pointer` is a JSON pointer (RFC 6901) into `file`; `line` is 1-based, 0 where the file has no such line.
    """

    id: str
    severity: Severity
    file: str
    pointer: str
    line: int
    message: str
    fix: str

    def to_json(self) -> dict[str, object]:
        """All fields, in the order in which they are declared."""
        return {
            "id": self.id,
            "severity": self.severity,
            "file": self.file,
            "pointer": self.pointer,
            "line": self.line,
            "message": self.message,
            "fix": self.fix,
        }


class Problem(NamedTuple):
    """What a rule says, before the line is known."""

    id: str
    file: str
    pointer: str
    message: str
    fix: str
    severity: Severity = "error"


#: Every id and what it stands for. Ids are never reused; docs/manifest.md explains each.
CATALOGUE: dict[str, str] = {
    "MG001": "file cannot be read",
    "MG002": "not JSON",
    "MG003": "duplicate key",
    "MG004": "nested too deeply, or too large",
    "MG005": "text with control characters or broken Unicode",
    "MG010": "does not match the schema",
    "MG011": "two rows with the same family name",
    "MG012": "a kept row has an architecture that a tombstone drops",
    "MG013": "a tombstone without a reason",
    "MG014": "repository names that differ only by case",
    "MG015": "a multimodal row of a tier without a projector",
    "MG016": "cache policy contradicts the shape",
    "MG017": "a row of a tier that can never be a leg",
    "MG018": "a package row without a package or an artifact",
    "MG019": "model and projector are the same file",
    "MG020": "two files of one artifact that differ only by case",
    "MG021": "part of a split GGUF is missing",
    "MG022": "patches with the same name, or out of order",
    "MG023": "a lane that does not exist",
    "MG024": "a lane parameter that the lane does not have",
    "MG025": "a backend that no runner class offers",
    "MG026": "untrusted event may reach weights or self-hosted runners",
    "MG027": "two runner classes with the same name",
    "MG028": "hosted runner class with self-hosted labels, or the reverse",
    "MG029": "rows are not in canonical form",
    "MG030": "row of a tier is not pinned",
}
