"""The C compiler of this machine: it alone decides how a struct is laid out."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.errors import BuildToolMissing, BuildToolStuck

_TIMEOUT_SECONDS = 120
_STANDARD = "-std=gnu11"


@dataclass(frozen=True)
class Compiled:
    """What the compiler said; `ok` is False if it refused, and `words` holds its messages without colours."""

    ok: bool
    words: str


def find_compiler() -> str:
    """The C compiler: `CC`, else cc, gcc or clang.

    Raises:
        BuildToolMissing: there is none.
    """
    chosen = os.environ.get("CC", "").split()
    for name in (*chosen[:1], "cc", "gcc", "clang"):
        if path := shutil.which(name):
            return path
    raise BuildToolMissing("no C compiler was found: install gcc or clang, or name one in CC")


def compiler_version(compiler: str) -> str:
    """The first line of what `--version` prints."""
    return (run_tool([compiler, "--version"]).stdout.splitlines() or ["unknown"])[0]


def preprocess(source: str, includes: Sequence[Path]) -> tuple[Compiled, str]:
    """`source` after the preprocessor, without comments and line marks."""
    done = _compile(source, includes, "-E", "-P")
    return Compiled(done.returncode == 0, done.stderr), done.stdout


def check_source(source: str, includes: Sequence[Path]) -> Compiled:
    """Compile `source` without output; static assertions that do not hold are among the words."""
    done = _compile(source, includes, "-fsyntax-only", "-Wall")
    return Compiled(done.returncode == 0, done.stderr)


def run_source(source: str, includes: Sequence[Path]) -> tuple[Compiled, str]:
    """Compile `source` to a program, run it, and return what it printed."""
    with tempfile.TemporaryDirectory(prefix="skippy-abi-") as folder:
        program = Path(folder) / "program"
        done = _compile(source, includes, "-o", str(program))
        if done.returncode != 0:
            return Compiled(False, done.stderr), ""
        ran = run_tool([str(program)])
        return Compiled(ran.returncode == 0, ran.stderr), ran.stdout


def run_tool(
    command: Sequence[str],
    *,
    text: str | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a tool with messages in plain English and without colours.

    Raises:
        BuildToolMissing: it is not installed.
        BuildToolStuck: it did not end in time.
    """
    try:
        return subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C", "GCC_COLORS": "", "TERM": "dumb", **(environment or {})},
        )
    except FileNotFoundError:
        raise BuildToolMissing(f"{command[0]} is not installed here: install it, or put it on the PATH") from None
    except OSError as error:
        raise BuildToolMissing(f"{command[0]} cannot be run ({error.strerror}): reinstall it") from error
    except subprocess.TimeoutExpired:
        raise BuildToolStuck(f"{command[0]} did not end within {timeout_seconds:.0f} s") from None


def _compile(source: str, includes: Sequence[Path], *options: str) -> subprocess.CompletedProcess[str]:
    paths = [f"-I{path}" for path in includes]
    return run_tool([find_compiler(), _STANDARD, "-x", "c", *paths, *options, "-"], text=source)
