"""The console that tables are printed on."""

from __future__ import annotations

from rich.console import Console

_PIPE_WIDTH = 120  # where nobody says how wide the other end is


def make_console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for the tables in a pipe.

    Text is printed as it is: names of files and architectures come from others and are no markup.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console
