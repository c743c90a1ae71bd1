"""A command line that looks like clap's: its `--help`, its usage errors, its exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True)
class Flag:
    """A flag; `value` is the name of its value, empty for a switch. `required` flags have no default."""

    name: str
    value: str = "VALUE"
    default: str | None = None
    required: bool = False


@dataclass(frozen=True)
class Command:
    """A command with its flags; `positional` is the name of an argument without a flag."""

    name: str
    flags: tuple[Flag, ...]
    positional: str = ""


def parse(program: str, about: str, commands: Sequence[Command], argv: Sequence[str]) -> tuple[str, Mapping[str, str]]:
    """The command and its values by flag; prints help or a usage error and ends the process where clap does."""
    known = {command.name: command for command in commands}
    if not argv or argv[0] in ("-h", "--help"):
        _print_commands(program, about, commands)
        sys.exit(0 if argv else 2)
    command = known.get(argv[0])
    if command is None:
        _usage_error(program, f"unrecognized subcommand '{argv[0]}'")
    if any(word in ("-h", "--help") for word in argv[1:]):
        _print_flags(program, command)
        sys.exit(0)
    return command.name, _values(program, command, list(argv[1:]))


def _values(program: str, command: Command, words: list[str]) -> dict[str, str]:
    flags = {flag.name: flag for flag in command.flags}
    values = {flag.name: flag.default for flag in command.flags if flag.default is not None}
    while words:
        word = words.pop(0)
        if not word.startswith("--") and command.positional and command.positional not in values:
            values[command.positional] = word
            continue
        flag = flags.get(word)
        if flag is None:
            _usage_error(program, f"unexpected argument '{word}' found")
        if flag.value and not words:
            _usage_error(program, f"a value is required for '{word}'")
        values[word] = words.pop(0) if flag.value else "true"
    for flag in command.flags:
        if flag.required and flag.name not in values:
            _usage_error(program, f"the following required arguments were not provided:\n  {flag.name}")
    return values


def _print_commands(program: str, about: str, commands: Sequence[Command]) -> None:
    lines = [about, "", f"Usage: {program} <COMMAND>", "", "Commands:"]
    lines += [f"  {command.name}" for command in commands]
    lines += [
        "  help  Print this message or the help of the given subcommand(s)",
        "",
        "Options:",
        "  -h, --help  Print help",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _print_flags(program: str, command: Command) -> None:
    needed = "".join(f" {flag.name} <{flag.value}>" for flag in command.flags if flag.required)
    lines = [f"Usage: {program} {command.name} [OPTIONS]{needed}", "", "Options:"]
    for flag in command.flags:
        value = f" <{flag.value}>" if flag.value else ""
        default = f"  [default: {flag.default}]" if flag.default else ""
        lines.append(f"      {flag.name}{value}{default}")
    lines.append("  -h, --help  Print help")
    sys.stdout.write("\n".join(lines) + "\n")


def _usage_error(program: str, message: str) -> NoReturn:
    sys.stderr.write(f"error: {message}\n\nUsage: {program} <COMMAND>\n")
    sys.exit(2)
