"""A receipt and its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.errors import ReceiptInvalid
from agent.lanes.result import LaneResult, Status
from agent.receipt.schema import check_receipt
from matrixgen.canonical import digest_of
from matrixgen.errors import CannotWrite
from matrixgen.files import write_atomically

SCHEMA_VERSION = 1
FILE_NAME = "receipt.json"


@dataclass(frozen=True, kw_only=True)
class TestedFile:
    """A file that was tested: name, bytes and digest."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class TestedSubject:
    """What was tested.

    Attributes:
        kind: ``weights`` or ``twin``.
        architecture: `general.architecture` of the file; empty when no header could be read.
        files: all files of the model.
        recipe: digest of the twin's recipe; None for weights.
        proves, does_not_prove: what a pass means, in words.
    """

    kind: str
    architecture: str
    files: tuple[TestedFile, ...]
    recipe: str | None
    proves: str
    does_not_prove: str


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What one leg saw.

    Attributes:
        leg: id of the leg, ``family@backend``.
        plan: digest of the plan that owed it.
        event: event of the plan.
        family: the manifest row.
        pin: the llama.cpp under test, as the plan has it.
        build_key: key of the build that the plan asked for.
        subject: what was tested.
        engine: version of llama.cpp and sha256 of its libraries; empty if it never loaded.
        device: name, description and backend; empty if none was opened.
        nodes_by_device: graph nodes that each device computed in one decode: evidence of where the work was done.
        agent: version of skippy-agent.
        runner: operating system, processor, cores and memory.
        run: identity of the CI run, from its environment; empty elsewhere.
        started_at, finished_at: ISO 8601, UTC.
        lanes: one result for each lane that the leg owed, in the order of the plan.
        log: the end of what native code wrote.
    """

    leg: str
    plan: str
    event: str
    family: Mapping[str, Any]
    pin: Mapping[str, Any]
    build_key: str
    subject: TestedSubject
    engine: Mapping[str, Any]
    device: Mapping[str, Any]
    nodes_by_device: Mapping[str, int]
    agent: str
    runner: Mapping[str, Any]
    run: Mapping[str, str]
    started_at: str
    finished_at: str
    lanes: tuple[LaneResult, ...]
    log: str

    @property
    def status(self) -> Status:
        """`PASS` only if there are lanes and every one passed; a failed lane outranks one that could not run."""
        statuses = {lane.status for lane in self.lanes}
        if statuses == {Status.PASS}:
            return Status.PASS
        return Status.FAIL if Status.FAIL in statuses else Status.INFRA

    @property
    def comparisons(self) -> int:
        """Over all lanes."""
        return sum(lane.comparisons for lane in self.lanes)

    @property
    def seconds(self) -> float:
        """Time spent in lanes."""
        return sum(lane.seconds for lane in self.lanes)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, with the status and the digest of all else."""
        body = {"schema_version": SCHEMA_VERSION, **asdict(self), "status": self.status}
        body = json.loads(json.dumps(body))  # tuples become lists and enums strings, as they will be read back
        return {**body, "digest": digest_of(body)}


def write_receipt(receipt: Receipt, folder: Path) -> Path:
    """Write `<folder>/<leg>/receipt.json`, whole or not at all.

    Raises:
        ReceiptInvalid: the receipt does not match its own schema, which is a fault of this program.
    """
    data = receipt.to_json()
    check_receipt(data, receipt.leg)
    path = folder / receipt.leg / FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"cannot make the folder {path.parent}: {error.strerror}; choose another with --receipts"
        ) from error
    write_atomically(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return path


def read_receipt(path: Path) -> Receipt:
    """Read a receipt.

    Raises:
        ReceiptInvalid: it cannot be read, does not match the schema, or was changed after it was written.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ReceiptInvalid(f"{path} is not a receipt: {error}. Run the leg again.") from error
    check_receipt(data, str(path))
    digest = data.pop("digest")
    if not _fits(data, digest):
        raise ReceiptInvalid(f"{path} was changed after it was written: its digest does not fit. Run the leg again.")
    status = data.pop("status")
    del data["schema_version"]
    subject = data["subject"]
    files = tuple(TestedFile(**file) for file in subject["files"])
    receipt = Receipt(
        **{
            **data,
            "subject": TestedSubject(**{**subject, "files": files}),
            "lanes": tuple(LaneResult.from_json(lane) for lane in data["lanes"]),
        }
    )
    if receipt.status != status:
        raise ReceiptInvalid(f"{path} says {status}, its lanes say {receipt.status}. Run the leg again.")
    return receipt


def _fits(data: Mapping[str, Any], digest: str) -> bool:
    try:
        return digest_of(data) == digest
    except ValueError:  # Python reads NaN and infinity, which no JSON has and no digest
        return False
