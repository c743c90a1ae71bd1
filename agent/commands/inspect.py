"""`skippy-agent inspect`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from agent.errors import ModelRefused
from agent.header.layers import layer_kinds_from_metadata, layer_kinds_from_tensors, period
from agent.header.loadable import unknown_types, why_refused
from agent.header.reader import Header, read_model_header
from agent.header.role import role_of
from agent.header.text import printable
from agent.reporters.summary import shorten_state
from agent.runner.examine import examine


def run(path: Path, *, header_only: bool, device: str | None, as_json: bool) -> int:
    """Say what a GGUF is; returns the exit code."""
    header = read_model_header(path)
    facts = describe_header(header)
    if not header_only and facts["role"] == "causal":
        try:
            facts |= examine(path, device)
        except ModelRefused as error:
            raise ModelRefused(f"{error}\n{why_refused(header)}") from error
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        _show(facts)
    return 0


def describe_header(header: Header) -> dict[str, Any]:
    """What the header alone says, as plain JSON values."""
    kinds = layer_kinds_from_metadata(header)
    return {
        "path": str(header.path),
        "architecture": header.architecture,
        "role": str(role_of(header)),
        "version": header.version,
        "bytes": header.file_size,
        "shards": len(header.shards),
        "tensors": len(header.tensors),
        "unknown_tensor_types": [*unknown_types(header)],
        "state_by_metadata": [*map(str, kinds)] if kinds else None,
        "state_by_tensors": [*map(str, layer_kinds_from_tensors(header))],
        "period": period(kinds) if kinds else None,
    }


def _show(facts: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from agent.reporters.console import make_console

    console = make_console()
    table = Table.grid(padding=(0, 2))
    kinds = facts["state_by_metadata"]
    rows = {
        "file": printable(facts["path"]),
        "architecture": f"{printable(facts['architecture'])} ({facts['role']})",
        "GGUF": f"version {facts['version']}, {facts['bytes']:,} bytes, {facts['shards']} file(s), {facts['tensors']} tensors",
        "state by metadata": shorten_state(",".join(kinds)) if kinds else "unknown: no state may be reused",
        "state by tensor names": shorten_state(",".join(facts["state_by_tensors"])),
        "period": "none" if facts["period"] is None else str(facts["period"]),
    }
    if facts["unknown_tensor_types"]:
        rows["unknown tensor types"] = ", ".join(map(str, facts["unknown_tensor_types"])) + " (the pin may lack them)"
    if "contract" in facts:
        contract = facts["contract"]
        illegal = [f"{cut} (reads {', '.join(caches[:3])})" for cut, caches in contract["illegal"].items()]
        rows |= {
            "state in the graph": shorten_state(",".join(contract["state"])),
            "layers": f"{len(contract['state'])}, width {contract['width']}",
            "legal cuts": ", ".join(map(str, contract["legal_cuts"])) or "none",
            "illegal cuts": "; ".join(illegal) or "none",
            "crosses a cut": " + ".join(contract["frontier"]) + (" + token ids" if contract["tokens"] else ""),
            "cache policy": contract["cache"],
            "examined on": contract["device"],
        }
    for label, value in rows.items():
        table.add_row(Text(label, style="bold"), Text(value))
    console.print(table)
