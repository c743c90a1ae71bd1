"""How a pin is published, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from agent.gate.moved import CERTIFIED_INPUTS, MovedPolicy
from agent.gate.pin_file import Layout
from agent.gate.refusal import Refusal


class PublishState(StrEnum):
    """What became of a certified pin."""

    PUBLISHED = "published"
    ALREADY_PUBLISHED = "already_published"
    DRY_RUN = "dry_run"
    TEST_AGAIN = "test_again"
    CERTIFIED_NOT_PUBLISHED = "certified_not_published"


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """How to publish.

    Attributes:
        branch: the branch that holds the pin.
        layout, pin_file: how and where the pin is kept.
        policy: what to do if the branch moved.
        inputs: what counts as a certified input; folders end in ``/``.
        pull_request: open one where the branch does not take a push.
        dry_run: decide everything and write nothing.
    """

    branch: str
    layout: Layout = Layout.JSON
    pin_file: str | None = None
    policy: MovedPolicy = MovedPolicy.RETEST_IF_INPUTS_MOVED
    inputs: Sequence[str] = CERTIFIED_INPUTS
    pull_request: bool = True
    dry_run: bool = False

    @property
    def path(self) -> str:
        """Path of the pin file in the repository."""
        return self.pin_file or self.layout.default_path


@dataclass(frozen=True, kw_only=True)
class Published:
    """The outcome.

    Attributes:
        state: what became of it.
        reason: one line.
        base: the commit that was tested.
        parent: parent of the pin commit; the tip at the last look where no commit was made.
        commit: the pin commit; None where none was made.
        changed: certified inputs that moved since the test.
        refusal: kind of refusal; None where nothing was refused.
        pull_request: its address; None where none was opened.
        message: text of the commit.
    """

    state: PublishState
    reason: str
    base: str
    parent: str
    commit: str | None = None
    changed: tuple[str, ...] = ()
    refusal: Refusal | None = None
    pull_request: str | None = None
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"schema_version": 1, **asdict(self), "changed": list(self.changed)}
