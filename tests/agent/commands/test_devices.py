"""`skippy-agent devices`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from agent.engine.devices import list_devices
from tests.agent.conftest import Cli


def test_devices_are_listed_as_json(cli: Cli) -> None:
    """Version and devices of the build, and nothing else on standard output."""
    done = cli("devices", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["version"]
    assert [device["name"] for device in found["devices"]] == [device.name for device in list_devices()]


def test_devices_are_listed_as_a_table(cli: Cli) -> None:
    """A row a device, with its backend and its memory."""
    done = cli("devices")
    assert done.code == 0
    for device in list_devices():
        assert device.name in done.out
        assert device.backend in done.out


def test_a_library_that_cannot_be_loaded_is_infra(process: Cli, tmp_path: Path) -> None:
    """`LLAMA_CPP_LIB_PATH` at a folder without libraries, or with garbage in their place: one line, exit code 4."""
    environment = {**os.environ, "LLAMA_CPP_LIB_PATH": str(tmp_path)}
    for name in ("libllama.so", "libllama.dylib"):
        (tmp_path / name).write_bytes(b"no library")
    done = process("devices", env=environment)
    assert done.code == 4, done.err
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert sys.executable not in done.out
