"""What the gate is given: receipts with the digests of their files, files that are none, and the run that asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.gate.reason import Cause
from agent.receipt.receipt import Receipt

_ATTEMPT = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class FiledReceipt:
    """A receipt that was read from a file.

    Attributes:
        place: path of the file inside the receipts' folder.
        sha256: of the bytes of the file.
        digest: the digest that the receipt states, which is that of its content.
        receipt: what it says.
        unsigned: why it does not count as signed; None where a well-formed signature bundle for these bytes lies beside it.
    """

    place: str
    sha256: str
    digest: str
    receipt: Receipt
    unsigned: str | None = "no signature bundle beside it"

    @property
    def attempt(self) -> int | None:
        """Attempt of the run, as the receipt says; 0 outside of CI, None if it makes no sense."""
        run = self.receipt.run
        if "run_id" not in run and "attempt" not in run:
            return 0
        return int(run["attempt"]) if _ATTEMPT.fullmatch(run.get("attempt", "")) else None


@dataclass(frozen=True, kw_only=True)
class RefusedFile:
    """A file that is called a receipt and is none."""

    place: str
    cause: Cause
    message: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was found in the receipts' folder.

    `builds` maps each build key to the sha256 of its files (see `agent.gate.builds`); None where nobody gave the lists.
    """

    receipts: tuple[FiledReceipt, ...]
    refused: tuple[RefusedFile, ...] = ()
    builds: Mapping[str, frozenset[str]] | None = None


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The run that asks for a verdict.

    Attributes:
        repository: ``owner/name``; None outside of GitHub.
        run_id, attempt: of the workflow run; None outside of CI.
        base_commit: the commit of the product's repository that was tested (40 hex); None if nobody said.
        base_tree: its tree; None if nobody said.
        jobs: job -> result of the `needs` context; None where it was not given.
        signatures_required: a receipt without a signature bundle does not count.
        builds_checked: the libraries of every leg were traced to the builds of the plan.
        certified_at: when the verdict is made, ISO 8601, UTC. The core has no clock.
    """

    repository: str | None = None
    run_id: str | None = None
    attempt: int | None = None
    base_commit: str | None = None
    base_tree: str | None = None
    jobs: Mapping[str, str] | None = None
    signatures_required: bool = False
    builds_checked: bool = False
    certified_at: str
