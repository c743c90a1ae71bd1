"""`skippy-agent report`."""

from __future__ import annotations

import sys
from pathlib import Path

from agent.errors import NoReceipts
from agent.receipt.receipt import FILE_NAME, read_receipt
from agent.reporters.page import PAGE_NAME, write_page


def run(receipts: Path, output: Path | None) -> int:
    """Write the page of all receipts in a folder; returns the exit code."""
    paths = sorted(receipts.glob(f"**/{FILE_NAME}"))
    if not paths:
        raise NoReceipts(
            f"no {FILE_NAME} in {receipts}: run `skippy-agent certify`, or give the folder with --receipts"
        )
    page = output or receipts / PAGE_NAME
    write_page([read_receipt(path) for path in paths], page)
    sys.stdout.write(f"{page}\n")
    return 0
