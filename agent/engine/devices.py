"""The devices of llama.cpp's registry, and the choice of one. A device that is not there is never replaced by the CPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from agent.engine.library import load_library
from agent.errors import DeviceMissing

# enum ggml_backend_dev_type (ggml-backend.h): CPU, GPU, integrated GPU, accelerator, meta
_CPU, _GPU, _IGPU = 0, 1, 2
_KINDS = {_CPU: "cpu", _GPU: "gpu", _IGPU: "igpu"}

# what a leg calls a backend -> how its devices are named by ggml
_BACKEND_PREFIXES = {
    "cpu": ("CPU",),
    "cuda": ("CUDA",),
    "metal": ("MTL", "Metal"),
    "vulkan": ("Vulkan",),
    "rocm": ("ROCm",),
}


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device of the registry.

    Attributes:
        name: as ggml calls it, for example ``CPU``, ``CUDA0``.
        description: the product, for example ``NVIDIA H200``.
        kind: ``cpu``, ``gpu``, ``igpu`` or ``other``.
        free_bytes, total_bytes: memory as ggml reports it.
        handle: the `ggml_backend_dev_t`, valid in this process only.
    """

    name: str
    description: str
    kind: str
    free_bytes: int
    total_bytes: int
    handle: int

    @property
    def is_cpu(self) -> bool:
        """True for the host processor."""
        return self.kind == "cpu"

    @property
    def backend(self) -> str:
        """The word that manifests and plans use: cpu, cuda, metal, vulkan, rocm or the lower-case name of ggml."""
        for backend, prefixes in _BACKEND_PREFIXES.items():
            if self.name.startswith(prefixes):
                return backend
        return self.name.lower()


def list_devices() -> tuple[Device, ...]:
    """All devices that this build of llama.cpp can use here, in the order of its registry."""
    ggml = load_library().ggml
    devices = []
    for index in range(ggml.ggml_backend_dev_count()):
        handle = ggml.ggml_backend_dev_get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        devices.append(
            Device(
                name=ggml.ggml_backend_dev_name(handle).decode(),
                description=ggml.ggml_backend_dev_description(handle).decode().strip(),
                kind=_KINDS.get(ggml.ggml_backend_dev_type(handle), "other"),
                free_bytes=free.value,
                total_bytes=total.value,
                handle=handle,
            )
        )
    return tuple(devices)


def choose_device(wanted: str | None) -> Device:
    """The device called `wanted` (``CUDA0``) or of the backend `wanted` (``cuda``); by default the best one present.

    Raises:
        DeviceMissing: no such device on this machine.
    """
    devices = list_devices()
    if wanted is None:
        best = next((device for kind in ("gpu", "igpu", "cpu") for device in devices if device.kind == kind), None)
        if best is None:
            raise DeviceMissing("llama.cpp reports no device at all: the build has no backend that runs here")
        return best
    for device in devices:
        if wanted.lower() in (device.name.lower(), device.backend):
            return device
    present = ", ".join(f"{device.name} ({device.description})" for device in devices) or "none"
    raise DeviceMissing(
        f"device {wanted!r} is not on this machine; present: {present}. Run the leg on a runner that has it."
    )
