"""`skippy-agent devices`."""

from __future__ import annotations

import json
import sys

from agent.runner.probe import probe

_GIB = 2**30


def run(*, as_json: bool) -> int:
    """List the devices; returns the exit code."""
    found = probe()
    if as_json:
        sys.stdout.write(json.dumps({"version": found.version, "devices": list(found.devices)}) + "\n")
        return 0

    from rich.table import Table

    from agent.reporters.console import make_console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("device", "backend", "product", "memory", "free"):
        table.add_column(column)
    for device in found.devices:
        table.add_row(
            device["name"],
            device["backend"],
            device["description"],
            f"{device['total_bytes'] / _GIB:.1f} GiB",
            f"{device['free_bytes'] / _GIB:.1f} GiB",
        )
    console = make_console()
    console.print(f"llama.cpp {found.version}")
    console.print(table)
    return 0
