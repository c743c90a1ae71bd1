"""Statements of receipts and verdicts as files: written beside them, and compared with them later."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from agent.errors import ReceiptInvalid, StatementInvalid, VerdictInvalid
from agent.gate.collect import MAX_RECEIPT_BYTES, file_receipt, read_bounded
from agent.gate.reason import State
from agent.gate.verdict import Verdict
from agent.gate.verdict_file import MAX_BYTES, read_verdict
from agent.receipt.receipt import FILE_NAME
from agent.receipt.statement import descriptor, receipt_predicate, result_predicate, run_url, statement
from matrixgen.files import write_atomically

STATEMENT_SUFFIX = ".statement.json"
PREDICATE_SUFFIX = ".predicate.json"


def verdict_predicate(verdict: Verdict) -> dict[str, Any]:
    """What a verdict says: each planned leg a test. Every receipt that counted is named by its bytes."""
    context = verdict.context
    return result_predicate(
        passed=[leg.leg for leg in verdict.legs if leg.state is State.GREEN],
        failed=[leg.leg for leg in verdict.legs if leg.state is not State.GREEN],
        configuration=[
            descriptor("plan.json", verdict.plan),
            descriptor("llama.cpp", str(verdict.pin["commit"]), "gitCommit"),
            *([descriptor("base", context.base_commit, "gitCommit")] if context.base_commit else []),
            *(descriptor(f"{leg.leg}/{FILE_NAME}", leg.sha256) for leg in verdict.legs if leg.sha256),
        ],
        green=verdict.state is State.GREEN,
        url=run_url(context.repository, context.run_id),
    )


def statement_of(path: Path) -> dict[str, Any]:
    """The statement about a receipt or a verdict file.

    Raises:
        StatementInvalid: the file is neither.
    """
    try:
        if path.name == FILE_NAME:
            raw = read_bounded(path, MAX_RECEIPT_BYTES)
            predicate = receipt_predicate(file_receipt(path, path.name, raw).receipt)
        else:
            raw = read_bounded(path, MAX_BYTES)
            predicate = verdict_predicate(read_verdict(path))
    except OSError as error:
        raise StatementInvalid(
            f"{path} cannot be read: {error.strerror or error}. Give a receipt or a verdict"
        ) from None
    except (ReceiptInvalid, VerdictInvalid) as error:
        raise StatementInvalid(f"no statement can be made of {path}: {error}") from error
    return statement(path.name, hashlib.sha256(raw).hexdigest(), predicate)


def write_statement(path: Path) -> tuple[Path, Path]:
    """Write the statement and the bare predicate (for `actions/attest`) beside `path`; their paths."""
    made = statement_of(path)
    files = (path.with_name(path.name + STATEMENT_SUFFIX), path.with_name(path.name + PREDICATE_SUFFIX))
    for file, content in zip(files, (made, made["predicate"]), strict=True):
        write_atomically(file, json.dumps(content, indent=1) + "\n")
    return files


def statement_problem(path: Path) -> str | None:
    """Why the statement beside a receipt or a verdict does not fit it; None if it fits, or if there is none."""
    beside = path.with_name(path.name + STATEMENT_SUFFIX)
    if not beside.exists() and not beside.is_symlink():
        return None
    try:
        found = json.loads(read_bounded(beside, MAX_RECEIPT_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        return f"{beside.name} is not a statement: {getattr(error, 'strerror', None) or error}"
    return None if found == statement_of(path) else f"{beside.name} does not say what {path.name} says"
