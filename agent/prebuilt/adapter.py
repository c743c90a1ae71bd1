"""What the binaries accept, asked of themselves: commands and flags from their `--help`, and the dialect that these make.

The product's command line changes between its releases, so no flag is taken for granted. A dialect is a name for a set of
commands that belong together; each flag is looked up as well before it is used.
"""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from agent.errors import BinaryUnknown, BinaryUnusable
from agent.prebuilt.binaries import CORRECTNESS, PACKAGE, SERVER, Toolset
from agent.prebuilt.processes import Ended, environment_for, run_program

_HELP_SECONDS = 60.0
_COMMAND = re.compile(r"^ {2}([a-z][a-z0-9-]*)(?: |$)")
_FLAG = re.compile(r"^\s+(?:-\w, )?(--[a-z0-9][a-z0-9-]*)")
_USAGE_FLAG = re.compile(r"--[a-z0-9][a-z0-9-]*")

_ALWAYS = frozenset({"single-step", "chain", "split-scan", "state-handoff"})
_COMMANDS = {
    CORRECTNESS: ("single-step", "chain", "split-scan", "dtype-matrix", "state-handoff"),
    SERVER: ("serve-openai", "serve-binary"),
    PACKAGE: ("preflight",),
}

Options = Mapping[str, str | int | Path | bool]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What a set of binaries accepts.

    Attributes:
        name: ``wire-dtypes``, whose activations cross as f32, f16 or q8, or ``raw-f32``, where they always are f32.
        flags: the flags of each command, as ``(binary, command)``; a command that is not there has no entry.
    """

    name: str
    flags: Mapping[tuple[str, str], frozenset[str]]

    @property
    def dropped(self) -> frozenset[tuple[str, str]]:
        """Commands that releases of this dialect are known not to have any more."""
        return frozenset() if self.wires else frozenset({(CORRECTNESS, "dtype-matrix")})

    @property
    def wires(self) -> bool:
        """True if the type of activations on the wire can be chosen."""
        return self.name == "wire-dtypes"

    def offers(self, binary: str, command: str) -> bool:
        """True if `binary` has `command`."""
        return (binary, command) in self.flags

    def arguments(self, binary: str, command: str, needed: Options, optional: Options | None = None) -> list[str]:
        """Command and flags as an argument list; of `optional`, those flags that the binary has. True is a flag without value.

        Raises:
            BinaryUnknown: the command, or a needed flag, is not there.
        """
        if not self.offers(binary, command):
            raise BinaryUnknown(
                f"this {binary} has no command {command!r}: leave the check out, or take another release"
            )
        known = self.flags[binary, command]
        if missing := [flag for flag in needed if flag not in known]:
            raise BinaryUnknown(
                f"`{binary} {command}` of this release has no {', '.join(missing)}: the adapter does not know it; "
                "take a release that it knows, or extend agent/prebuilt/adapter.py"
            )
        words = [command]
        for flag, value in {
            **needed,
            **{flag: value for flag, value in (optional or {}).items() if flag in known},
        }.items():
            if value is True:
                words.append(flag)
            elif value is not False:
                words += [flag, str(value)]
        return words


def probe(tools: Toolset) -> Dialect:
    """Ask each binary that is there for its commands and flags.

    Raises:
        BinaryUnusable: one does not run here.
        BinaryUnknown: they are of no dialect that this adapter knows.
    """
    offered = {
        (binary, command): path
        for binary, path in tools.paths.items()
        for command in sorted(parse_commands(_help(path)))
        if command in _COMMANDS[binary]
    }
    with ThreadPoolExecutor() as pool:
        texts = pool.map(lambda entry: _help(entry[1], entry[0][1]), offered.items())
        flags = {key: parse_flags(text) for key, text in zip(offered, texts, strict=True)}
    return Dialect(name=_name(tools, flags), flags=flags)


def parse_commands(text: str) -> frozenset[str]:
    """The commands that a `--help` lists."""
    found = set()
    listing = False
    for line in text.splitlines():
        if line.strip() == "Commands:":
            listing = True
        elif listing and not line.strip():
            break
        elif listing and (match := _COMMAND.match(line)):
            found.add(match[1])
    return frozenset(found)


def parse_flags(text: str) -> frozenset[str]:
    """The flags that the `--help` of a command lists, with those that only its usage line names."""
    found = {match[1] for line in text.splitlines() if (match := _FLAG.match(line))}
    usage = next((line for line in text.splitlines() if line.startswith("Usage:")), "")
    return frozenset(found | set(_USAGE_FLAG.findall(usage)))


def _name(tools: Toolset, flags: Mapping[tuple[str, str], frozenset[str]]) -> str:
    if CORRECTNESS not in tools.paths:
        wire = "--activation-wire-dtype" in flags.get((SERVER, "serve-binary"), frozenset())
        return "wire-dtypes" if wire else "raw-f32"
    offered = {command for binary, command in flags if binary == CORRECTNESS}
    if missing := sorted(_ALWAYS - offered):
        raise BinaryUnknown(
            f"{tools.paths[CORRECTNESS].name} has no {', '.join(missing)}: it is of a release that no adapter knows. Take "
            "another one, or extend agent/prebuilt/adapter.py"
        )
    matrix = "dtype-matrix" in offered
    wire = "--activation-wire-dtype" in flags[CORRECTNESS, "single-step"]
    if matrix is not wire:
        raise BinaryUnknown(
            f"{tools.paths[CORRECTNESS].name} has {'a' if matrix else 'no'} dtype-matrix and "
            f"{'a' if wire else 'no'} --activation-wire-dtype: no release that the adapter knows is like that"
        )
    return "wire-dtypes" if wire else "raw-f32"


def _help(path: Path, *command: str) -> str:
    with tempfile.TemporaryDirectory(prefix="skippy-probe-") as name:
        scratch = Path(name)
        log = scratch / "help"
        ended = run_program([path, *command, "--help"], log, environment_for("cpu", scratch), _HELP_SECONDS)
        text = log.with_name("help.out").read_text(encoding="utf-8", errors="replace")
    if why := _why_unusable(ended, text):
        words = " ".join([path.name, *command, "--help"])
        raise BinaryUnusable(f"`{words}` {why}")
    return text


def _why_unusable(ended: Ended, text: str) -> str:
    if ended.timed_out:
        return f"does not end: stopped after {_HELP_SECONDS:.0f} s"
    if ended.code == -signal.SIGKILL:
        return (
            "was killed at its start (SIGKILL): too little memory, or a system that does not let unsigned programs run; "
            "on macOS look at its quarantine attribute"
        )
    if ended.code < 0:
        return (
            f"died at its start ({signal.Signals(-ended.code).name}): {ended.words}. The build is most often made for "
            "another processor"
        )
    if ended.code:
        return f"ends with exit code {ended.code}: {ended.words}. The build does not fit this machine"
    return "" if text.strip() else "prints nothing: it is not the product's binary"
