"""Build the shared libraries of llama.cpp with cmake, so that the same sources and tools give the same bytes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.build.compiler import compiler_version, find_compiler, run_tool
from agent.errors import BuildFailed, BuildToolMissing

_TAIL_LINES = 15
# nothing that is looked up in the environment may change the result
_ENVIRONMENT = {"SOURCE_DATE_EPOCH": "0", "CFLAGS": "", "CXXFLAGS": "", "LDFLAGS": "", "LC_ALL": "C", "TZ": "UTC"}
_COMMON = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    f"-DCMAKE_INSTALL_RPATH={'@loader_path' if sys.platform == 'darwin' else '$ORIGIN'}",
    "-DGGML_NATIVE=OFF",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_COMMON=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF",
)
_OF_BACKEND = {
    "cpu": ("-DGGML_METAL=OFF", "-DGGML_CUDA=OFF"),
    "cuda": ("-DGGML_CUDA=ON",),
    "metal": ("-DGGML_METAL=ON",),
    "vulkan": ("-DGGML_VULKAN=ON",),
    "rocm": ("-DGGML_HIP=ON",),
}
_TOOL_OF_BACKEND = {"cuda": "nvcc", "vulkan": "glslc", "rocm": "hipcc"}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to build.

    Attributes:
        backend: cpu, cuda, metal, vulkan or rocm.
        extra: more arguments of cmake, such as ``-DCMAKE_CUDA_ARCHITECTURES=90``.
        jobs: compilers at once.
    """

    backend: str
    extra: tuple[str, ...] = ()
    jobs: int = 1

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of cmake that decide the result; no path of this machine is among them."""
        return (*_COMMON, *_OF_BACKEND[self.backend], *self.extra)


def toolchain(recipe: Recipe) -> dict[str, str]:
    """Versions of the tools that decide the result.

    Raises:
        BuildToolMissing: one is not here.
    """
    found = {"cc": compiler_version(find_compiler()), "cmake": compiler_version(_require("cmake"))}
    if tool := _TOOL_OF_BACKEND.get(recipe.backend):
        found[tool] = " ".join(run_tool([_require(tool), "--version"]).stdout.split("\n")[-3:]).strip()
    return found


def make_libraries(sources: Path, work: Path, target: Path, recipe: Recipe, tell: Callable[[str], None]) -> None:
    """Build `sources` in `work` and leave the libraries with their links in `target`.

    Raises:
        BuildFailed: cmake or a compiler failed; the message has the end of their output.
        BuildToolMissing: cmake is not here.
    """
    # what __FILE__ and debug information would say of this machine
    maps = f"-ffile-prefix-map={sources}=llama.cpp -ffile-prefix-map={work}=build"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    launcher = shutil.which("sccache")
    launchers = [f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}" for language in ("C", "CXX") if launcher]
    configure = [_require("cmake"), "-S", str(sources), "-B", str(work), *generator, *launchers, *recipe.flags]
    _run([*configure, f"-DCMAKE_C_FLAGS={maps}", f"-DCMAKE_CXX_FLAGS={maps}"], tell)
    _run([_require("cmake"), "--build", str(work), "--target", "llama", "--parallel", str(recipe.jobs)], tell)
    target.mkdir(parents=True, exist_ok=True)
    libraries = sorted(path for path in (work / "bin").glob("lib*") if ".so" in path.name or path.suffix == ".dylib")
    if not any(path.name.startswith("libllama.") for path in libraries):
        raise BuildFailed("cmake ended well and left no libllama in bin: the layout of the build tree has changed")
    for path in libraries:
        shutil.copy2(path, target / path.name, follow_symlinks=False)
    if (sources / "LICENSE").is_file():
        shutil.copy(sources / "LICENSE", target / "LICENSE.llama.cpp")


def _run(command: Sequence[str], tell: Callable[[str], None]) -> None:
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, **_ENVIRONMENT},
    )
    try:
        for line in child.stdout or ():
            tail.append(line.rstrip())
            tell(line.rstrip())
        code = child.wait()
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child.stdout:
            child.stdout.close()
    if code != 0:
        words = "\n  ".join(tail)
        raise BuildFailed(f"build_failed: {Path(command[0]).name} ended with exit code {code}:\n  {words}")


def _require(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise BuildToolMissing(f"{tool} is not on this machine: install it, or put it on the PATH")
    return path
