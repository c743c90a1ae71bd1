"""Which device a leg runs on: the one that was asked for, or none."""

from __future__ import annotations

import pytest

from agent.engine.devices import Device, choose_device, list_devices
from agent.errors import DeviceMissing
from agent.runner.probe import Probe, probe

BACKENDS = ("cpu", "cuda", "metal", "vulkan", "rocm")


def test_there_is_a_cpu() -> None:
    """Every build has the host processor, with its memory."""
    (cpu,) = [device for device in list_devices() if device.is_cpu]
    assert cpu.backend == "cpu"
    assert cpu.total_bytes > 0
    assert choose_device("cpu") == choose_device("CPU") == cpu


def test_the_best_device_is_the_default() -> None:
    """A GPU where there is one, else the CPU."""
    kinds = {device.kind for device in list_devices()}
    assert choose_device(None).kind == next(kind for kind in ("gpu", "igpu", "cpu") if kind in kinds)


@pytest.mark.parametrize("wanted", [*BACKENDS, "CUDA0", "CUDA7", "", "nonsense", "cpu0"])
def test_a_device_that_is_not_there_is_never_replaced(wanted: str) -> None:
    """What is absent is refused with the names of what is present; what is present is what was asked for."""
    devices = list_devices()
    if wanted.lower() in {word for device in devices for word in (device.name.lower(), device.backend)}:
        chosen = choose_device(wanted)
        assert wanted.lower() in (chosen.name.lower(), chosen.backend)
        return
    with pytest.raises(DeviceMissing) as refusal:
        choose_device(wanted)
    assert repr(wanted) in str(refusal.value)
    assert all(device.name in str(refusal.value) for device in devices)
    assert refusal.value.exit_code == 4


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("CPU", "cpu"),
        ("CUDA0", "cuda"),
        ("CUDA11", "cuda"),
        ("MTL0", "metal"),
        ("Metal", "metal"),
        ("Vulkan1", "vulkan"),
        ("ROCm0", "rocm"),
        ("BLAS", "blas"),
    ],
)
def test_backends_are_known_by_the_names_of_devices(name: str, backend: str) -> None:
    """The words of ggml are turned into those of the manifest."""
    device = Device(name=name, description="", kind="gpu", free_bytes=0, total_bytes=0, handle=0)
    assert device.backend == backend


def test_the_probe_says_what_the_registry_says() -> None:
    """Asked in a child, llama.cpp names the same devices."""
    found = probe()
    assert [entry["name"] for entry in found.devices] == [device.name for device in list_devices()]
    assert found.version
    assert found.backend_of(None) == choose_device(None).backend
    assert found.backend_of("CPU") == "cpu"


@pytest.mark.parametrize(
    ("names", "wanted", "backend"),
    [
        (["CPU"], None, "cpu"),
        (["CPU", "CUDA0"], None, "cuda"),
        (["CUDA0", "CPU"], "cpu", "cpu"),
        (["CUDA0", "CUDA1", "CPU"], "cuda1", "cuda"),
        (["CPU"], "cuda", None),
        ([], None, None),
    ],
)
def test_the_probe_chooses_as_the_engine_does(names: list[str], wanted: str | None, backend: str | None) -> None:
    """The best one by default, the named one else, and a refusal where it is not there."""
    devices = [
        {"name": name, "backend": name.rstrip("01").lower(), "kind": "cpu" if name == "CPU" else "gpu"}
        for name in names
    ]
    found = Probe("v", tuple(devices))
    if backend is not None:
        assert found.backend_of(wanted) == backend
        return
    with pytest.raises(DeviceMissing, match="present: "):
        found.backend_of(wanted)
