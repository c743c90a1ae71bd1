"""Read a folder of receipts that nobody vouches for: links, huge, deep, broken and thousands of files end as findings."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.errors import ReceiptEdited, ReceiptInvalid, ReceiptsUnreadable
from agent.gate.evidence import Evidence, FiledReceipt, RefusedFile
from agent.gate.reason import Cause
from agent.gate.signature import MAX_BYTES as MAX_BUNDLE_BYTES
from agent.gate.signature import SUFFIX, bundle_problem
from agent.receipt.receipt import FILE_NAME, Receipt, read_receipt
from matrixgen.canonical import digest_of
from matrixgen.source import too_deep

MAX_RECEIPT_BYTES = 8 * 2**20
MAX_RECEIPTS = 5_000
MAX_ENTRIES = 100_000
MAX_TOTAL_BYTES = 512 * 2**20
_MAX_FOLDERS = 12  # levels below the receipts' folder
_MAX_COUNT = 10**12  # comparisons of a lane, and its seconds


def collect(folder: Path) -> Evidence:
    """Every `receipt.json` below `folder`. Links are never followed.

    Raises:
        ReceiptsUnreadable: the folder is not there, cannot be listed, or holds more than the limits allow.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise ReceiptsUnreadable(f"{folder} is not a folder of receipts: give the one that the legs were downloaded to")
    receipts: list[FiledReceipt] = []
    refused: list[RefusedFile] = []
    total = 0
    for path in sorted(_candidates(folder)):
        place = path.relative_to(folder).as_posix()
        if len(receipts) + len(refused) >= MAX_RECEIPTS:
            raise ReceiptsUnreadable(f"{folder} holds more than {MAX_RECEIPTS} receipts: give the folder of one run")
        try:
            raw = read_bounded(path, MAX_RECEIPT_BYTES)
            total += len(raw)
            if total > MAX_TOTAL_BYTES:
                raise ReceiptsUnreadable(f"the receipts in {folder} have more than {MAX_TOTAL_BYTES} bytes")
            receipts.append(file_receipt(path, place, raw))
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}"
            refused.append(RefusedFile(place=place, cause=Cause.RECEIPT_UNREADABLE, message=message))
        except ReceiptInvalid as error:
            cause = Cause.RECEIPT_EDITED if isinstance(error, ReceiptEdited) else Cause.RECEIPT_INVALID
            message = " ".join(str(error).removeprefix(f"{path} ").split())
            refused.append(RefusedFile(place=place, cause=cause, message=message))
    return Evidence(receipts=tuple(receipts), refused=tuple(refused))


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a regular file. Raises OSError for a link, for anything else, and for more than `limit` bytes."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise OSError(0, f"it has more than {limit} bytes")
    return raw


def file_receipt(path: Path, place: str, raw: bytes) -> FiledReceipt:
    """The receipt in `raw`, the bytes of `path`, with the signature bundle beside it.

    Raises:
        ReceiptInvalid: it is not a receipt, or not the one that it says it is.
    """
    data = _parse(raw)
    stated = data.get("digest")
    if stated is not None and digest_of({key: value for key, value in data.items() if key != "digest"}) != stated:
        raise ReceiptEdited("changed after it was written: its digest does not fit its content")
    try:
        receipt = read_receipt(path)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise ReceiptInvalid(f"not a receipt: {type(error).__name__}") from error
    if receipt.to_json()["digest"] != stated:
        raise ReceiptInvalid("it changed while it was read")
    _check_numbers(receipt)
    sha256 = hashlib.sha256(raw).hexdigest()
    return FiledReceipt(
        place=place,
        sha256=sha256,
        digest=str(stated),
        receipt=receipt,
        unsigned=bundle_problem(_bundle(path), sha256),
    )


def _bundle(path: Path) -> bytes | None:
    try:
        return read_bounded(path.with_name(path.name + SUFFIX), MAX_BUNDLE_BYTES)
    except OSError:
        return None


def _parse(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`: UTF-8, no key twice, no infinity, not deep."""
    try:
        text = raw.decode("utf-8")
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise ReceiptInvalid(f"not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise ReceiptInvalid(f"not JSON that can be used: {error}") from None
    if too_deep("receipt", text):
        raise ReceiptInvalid("nested too deeply")
    if not isinstance(data, dict):
        raise ReceiptInvalid("not a JSON object")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has the same key twice")
    return made


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is out of range")
    return value


def _check_numbers(receipt: Receipt) -> None:
    for lane in receipt.lanes:
        if type(lane.comparisons) is not int or lane.comparisons > _MAX_COUNT or not 0 <= lane.seconds <= _MAX_COUNT:
            raise ReceiptInvalid(f"lane {lane.lane[:60]} has counts or seconds that cannot be")


def _candidates(folder: Path) -> Iterator[Path]:
    """Everything called `receipt.json`, without following a link."""
    entries = 0
    for root, folders, files in os.walk(folder, onerror=_cannot_list, followlinks=False):
        here = Path(root)
        entries += len(folders) + len(files)
        if entries > MAX_ENTRIES:
            raise ReceiptsUnreadable(f"{folder} holds more than {MAX_ENTRIES} files: give the folder of one run")
        if len(here.relative_to(folder).parts) >= _MAX_FOLDERS:
            raise ReceiptsUnreadable(f"{folder} has more than {_MAX_FOLDERS} levels of folders: give that of one run")
        yield from (here / name for name in (*files, *folders) if name == FILE_NAME)


def _cannot_list(error: OSError) -> None:
    raise ReceiptsUnreadable(f"{error.filename} cannot be listed: {error.strerror}") from error
