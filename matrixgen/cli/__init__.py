"""The command line. Commands only translate: they call the core, and print what it returns.

Each command lives in a module that is loaded when it is called, and heavy imports happen inside the commands, so that `--help`
and `emit` stay instant. Environment, clock and git are touched below this package and nowhere else.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Entry point of the console script.

    A command is over in a moment, so garbage is not collected, not even while click is imported, and the interpreter is not
    taken apart at the end: both would take as long as the planning itself.
    """
    gc.disable()
    from matrixgen.cli.group import CLOSED_PIPE, run

    code = run()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or CLOSED_PIPE
    os._exit(code)
