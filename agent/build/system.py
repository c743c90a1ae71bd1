"""What a build needs of the machine that runs it: system, C library, and shared libraries that it does not bring."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent.build.compiler import run_tool
from agent.errors import BuildInvalid

_NEEDED = re.compile(r"\(NEEDED\).*\[(.+?)\]")
_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")
# backend -> (the library of ggml that it makes, beginnings of the names of what that library needs)
BACKENDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cpu": ("ggml-cpu", ()),
    "cuda": ("ggml-cuda", ("libcudart", "libcublas", "libcuda.")),
    "metal": ("ggml-metal", ()),
    "vulkan": ("ggml-vulkan", ("libvulkan",)),
    "rocm": ("ggml-hip", ("libamdhip64", "libhipblas", "librocblas")),
}


def system_of_build(libraries: Iterable[Path]) -> dict[str, str]:
    """os, arch and, on Linux with glibc, the oldest glibc that has every symbol that the libraries ask for."""
    found = {"os": _os(), "arch": _arch()}
    if sys.platform == "linux":
        versions = [
            tuple(map(int, match.split(".")))
            for path in libraries
            for match in _GLIBC.findall(run_tool(["readelf", "-V", "-W", str(path)]).stdout)
        ]
        if versions:
            found["glibc"] = ".".join(map(str, max(versions)))
    return found


def why_not_here(system: Mapping[str, str]) -> str:
    """Why a build cannot run on this machine; empty if nothing speaks against it."""
    here = {"os": _os(), "arch": _arch()}
    for name, value in here.items():
        if system.get(name) != value:
            built = system.get(name, "unknown")
            return f"it was built for {name} {built}, and this machine is {value}: take the build of its runner"
    name, version = platform.libc_ver()
    wanted = system.get("glibc", "")
    if name == "glibc" and re.fullmatch(r"\d+(\.\d+)+", wanted) and _numbers(wanted) > _numbers(version):
        return f"it needs glibc {wanted} and this machine has {version}: build on the oldest system that must run it"
    return ""


def needed_by(libraries: Sequence[Path], brought: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Names that each library asks the loader for and that are not `brought` along."""
    found = {}
    for path in libraries:
        if sys.platform == "darwin":
            lines = run_tool(["otool", "-L", str(path)]).stdout.splitlines()[1:]
            names = [line.split()[0].rpartition("/")[2] for line in lines if line.split()]
        else:
            names = _NEEDED.findall(run_tool(["readelf", "-d", "-W", str(path)]).stdout)
        found[path.name] = tuple(sorted(name for name in set(names) if name not in brought))
    return found


def check_backend(backend: str, names: Iterable[str], needed: Mapping[str, Sequence[str]]) -> None:
    """A build must hold its own backend and no other accelerator's.

    Raises:
        BuildInvalid: it does not, so that its legs would run on something else than they say.
    """
    library = BACKENDS[backend][0]
    if not any(name.startswith(f"lib{library}.") for name in names):
        raise BuildInvalid(f"the build for {backend} holds no lib{library}: cmake left the backend out; see its log")
    foreign = [prefix for other, (_, wanted) in BACKENDS.items() if other != backend for prefix in wanted]
    for name, wants in needed.items():
        if found := [want for want in wants if want.startswith(tuple(foreign))]:
            raise BuildInvalid(f"the build for {backend} needs {found[0]} ({name}): it is a build for another backend")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _os() -> str:
    return {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)


def _arch() -> str:
    machine = platform.machine().lower()
    return {"amd64": "x64", "x86_64": "x64", "aarch64": "arm64"}.get(machine, machine)
