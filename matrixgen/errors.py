"""Every way in which matrixgen refuses, one class a cause.

Exit codes (also in docs/matrixgen.md): 0 all good, 1 findings, 2 bad usage or bad input, 3 nothing selected,
4 a limit or a runner does not hold the plan, 5 a file could not be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matrixgen.findings import Finding


class MatrixgenError(Exception):
    """Base of all refusals; the message says what, where, why and the next step."""

    exit_code = 2


class ManifestUnreadable(MatrixgenError):
    """A manifest file is missing, is not a regular file, is too large, or is not UTF-8."""

    def __init__(self, problem: str, fix: str) -> None:
        self.problem = problem
        self.fix = fix
        super().__init__(f"{problem}; {fix}")


class ManifestInvalid(MatrixgenError):
    """The manifest has errors; `findings` holds them and the warnings, `errors` the errors alone."""

    exit_code = 1

    def __init__(self, findings: Sequence[Finding], root: Path) -> None:
        self.findings = tuple(findings)
        self.root = root
        self.errors = tuple(finding for finding in self.findings if finding.severity == "error")
        noun = "error" if len(self.errors) == 1 else "errors"
        warnings = len(self.findings) - len(self.errors)
        also = f"; it lists the warnings, too ({warnings})" if warnings else ""
        super().__init__(
            f"{len(self.errors)} {noun} in the manifests of {root}; run `matrixgen validate` after each fix{also}"
        )


class UnknownFamily(MatrixgenError):
    """A family name or glob matches no row."""

    def __init__(self, name: str, known: Sequence[str], *, what: str = "family", where: str = "families.json") -> None:
        import difflib

        self.name = name
        self.nearest = tuple(difflib.get_close_matches(name[:100].lower().replace("_", "-"), known, n=3, cutoff=0.5))
        hint = f"did you mean {', '.join(self.nearest)}?" if self.nearest else "it must be one of those that are there"
        super().__init__(f"unknown {what} {name[:100]!r}: {where} has no such name; {hint}")


class UnknownEvent(MatrixgenError):
    """The event has no battery."""

    def __init__(self, event: str, known: Sequence[str]) -> None:
        super().__init__(f"unknown event {event!r}: batteries.json has {', '.join(known)}")


class UnknownBackend(MatrixgenError):
    """No runner class offers the backend."""

    def __init__(self, backend: str, known: Sequence[str]) -> None:
        super().__init__(f"unknown backend {backend!r}: runners.json offers {', '.join(known)}")


class UnknownSubject(MatrixgenError):
    """A subject other than weights or twin."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"unknown subject {subject!r}: a leg runs on `weights` or on a `twin`")


class NothingSelected(MatrixgenError):
    """The selection has no leg; absent is never green, so this fails unless --allow-empty is given."""

    exit_code = 3


class NoRunnerFits(MatrixgenError):
    """A leg needs more than any runner class of its backend has; the message says by how much."""

    exit_code = 4


class LimitExceeded(MatrixgenError):
    """Something emitted would cross a documented limit of GitHub Actions."""

    exit_code = 4


class PlanInvalid(MatrixgenError):
    """A plan file does not match its schema or its own digest."""


class InvalidValue(MatrixgenError):
    """A value given on the command line or by a caller cannot be used."""


class NotFresh(MatrixgenError):
    """The last verdict is too old, not green, or not there: nobody has been testing."""

    exit_code = 1


class CannotWrite(MatrixgenError):
    """A file could not be written; nothing was changed."""

    exit_code = 5
