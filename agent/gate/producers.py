"""Who made a check: a name alone proves nothing, since anybody with the right to write checks can use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GITHUB_ACTIONS_APP = 15368  # id of the app that makes the checks of workflow jobs


@dataclass(frozen=True, kw_only=True)
class CheckFacts:
    """What GitHub says of a check run; None for what it does not say."""

    id: int
    name: str
    app_id: int | None
    head_sha: str | None
    run_id: str | None
    workflow: str | None
    conclusion: str | None


@dataclass(frozen=True, kw_only=True)
class Producer:
    """The only producer whose check counts: an app, a workflow file, a run, and the commit that it ran on."""

    app_id: int
    workflow: str
    run_id: str
    head_sha: str

    def made(self, check: CheckFacts) -> bool:
        """True if all four are as they should be; missing data is never a match."""
        return (check.app_id, check.workflow, check.run_id, check.head_sha) == (
            self.app_id,
            self.workflow,
            self.run_id,
            self.head_sha,
        )


def check_problem(checks: Sequence[CheckFacts], name: str, producer: Producer) -> str | None:
    """Why the check `name` does not count; None if its one producer is the right one and it ended in success.

    Two producers of one name block each other, whichever is newer: GitHub shows the latest and hides the other.
    """
    named = [check for check in checks if check.name == name]
    if not named:
        return f"no check is called {name!r}: absent is not green"
    others = sorted(check.id for check in named if not producer.made(check))
    if others:
        return f"check {name!r} has another producer than run {producer.run_id} of {producer.workflow}: ids {others}"
    bad = sorted({str(check.conclusion) for check in named if check.conclusion != "success"})
    return f"check {name!r} ended as {', '.join(bad)}" if bad else None
