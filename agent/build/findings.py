"""What a check of a build or of a patch queue found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        id: stable name; docs/build.md explains each.
        severity: an error makes the check fail; a warning is for a reviewer.
        file: the file, relative to what was looked at; a struct's name where there is no file.
        line: 1-based; 0 where no line applies.
        message: what is wrong.
        why: what goes wrong because of it.
        fix: what to do next.
    """

    id: str
    severity: Severity
    file: str
    line: int
    message: str
    why: str
    fix: str

    def to_json(self) -> dict[str, object]:
        """All fields, in the order in which they are declared."""
        return asdict(self)

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.severity} {self.id}: {self.message}"
