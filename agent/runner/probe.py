"""What llama.cpp can use here, asked in a child process so that a broken build cannot take the agent with it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import DeviceMissing, EngineUnavailable
from agent.runner.supervise import ask_child

_TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Probe:
    """The engine of this machine: llama.cpp's version and its devices in the order of its registry."""

    version: str
    devices: tuple[Mapping[str, Any], ...]

    def backend_of(self, device: str | None) -> str:
        """The backend of a device, by its name or its backend's; without one, that of the best device.

        Raises:
            DeviceMissing: no such device.
        """
        for entry in self.devices:
            if device is not None and device.lower() in (entry["name"].lower(), entry["backend"]):
                return str(entry["backend"])
        if device is None:
            for kind in ("gpu", "igpu", "cpu"):
                for entry in self.devices:
                    if entry["kind"] == kind:
                        return str(entry["backend"])
        present = ", ".join(entry["name"] for entry in self.devices) or "none"
        raise DeviceMissing(f"device {device!r} is not on this machine; present: {present}")


@functools.cache
def probe() -> Probe:
    """Ask llama.cpp.

    Raises:
        EngineUnavailable: it cannot be loaded, or it died while it was asked.
    """
    child = ask_child("agent.runner.probe", [], _TIMEOUT_SECONDS)
    lines = child.stdout.splitlines()
    if child.returncode != 0 or not lines:
        words = (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise EngineUnavailable(f"llama.cpp cannot be used here (exit code {child.returncode}): {words}")
    answer = json.loads(lines[-1])
    if "error" in answer:
        raise EngineUnavailable(answer["error"])
    return Probe(answer["version"], tuple(answer["devices"]))


def _answer() -> dict[str, Any]:
    from agent.engine.devices import list_devices
    from agent.engine.library import load_library

    try:
        version = load_library().version
    except EngineUnavailable as error:
        return {"error": str(error)}
    devices = [
        {
            "name": device.name,
            "description": device.description,
            "kind": device.kind,
            "backend": device.backend,
            "free_bytes": device.free_bytes,
            "total_bytes": device.total_bytes,
        }
        for device in list_devices()
    ]
    return {"version": version, "devices": devices}


if __name__ == "__main__":
    print(json.dumps(_answer()))  # noqa: T201 - the answer to the parent
