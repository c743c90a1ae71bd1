"""The console that tables are printed on."""

from __future__ import annotations

from rich.console import Console

_PIPE_WIDTH = 120  # where nobody says how wide the other end is


def make_console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for the tables in a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
