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
