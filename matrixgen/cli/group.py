"""The group of all commands, and how a refusal becomes a message and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from matrixgen import __version__
from matrixgen.errors import ManifestInvalid, MatrixgenError

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOSED_PIPE = 141  # what a shell shows for a program that SIGPIPE ended
#: Command -> module of this package that holds it.
COMMANDS = {
    "emit": "planning",
    "plan": "planning",
    "keys": "planning",
    "diff": "planning",
    "explain": "looking",
    "costs": "looking",
    "inventory": "looking",
    "download-commands": "looking",
    "schema": "looking",
    "validate": "checking",
    "review": "checking",
    "tombstones": "checking",
    "move": "editing",
    "add": "editing",
    "fmt": "editing",
    "pin": "editing",
}


class LazyCommands(dict[str, click.Command]):
    """Commands by name; one is imported when it is looked up."""

    def __missing__(self, name: str) -> click.Command:
        command: click.Command = getattr(import_module(f"matrixgen.cli.{COMMANDS[name]}"), name.replace("-", "_"))
        self[name] = command
        return command

    def __iter__(self) -> Any:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def get(self, name: str, default: Any = None) -> Any:
        """The command, or `default` where there is none of that name."""
        return self[name] if name in COMMANDS else default

    def items(self) -> Any:
        """All commands, loaded."""
        return {name: self[name] for name in COMMANDS}.items()

    def values(self) -> Any:
        """All commands, loaded."""
        return {name: self[name] for name in COMMANDS}.values()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="matrixgen")
@click.pass_context
def cli(context: click.Context) -> None:
    """Turn the tier manifest and the llama.cpp pin into plans and GitHub Actions job matrices."""
    if os.environ.get("NO_COLOR"):
        context.color = False


cli.commands = LazyCommands()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Every refusal becomes a message on standard error."""
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments), prog_name="matrixgen", standalone_mode=False
        )
    except ManifestInvalid as error:
        from matrixgen import report

        click.echo(report.findings_text(error.errors), err=True)
        click.echo(f"{click.style('error', fg='red', bold=True)}: {error}", err=True)
        return error.exit_code
    except MatrixgenError as error:
        click.echo(f"{click.style('error', fg='red', bold=True)}: {_printable(str(error))}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BrokenPipeError:
        # The reader went away (`| head`); point stdout elsewhere so that the interpreter does not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    return result if isinstance(result, int) else 0


def _printable(text: str) -> str:
    """`text` without what could command a terminal or a workflow: a path or a word of the user may hold anything."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
