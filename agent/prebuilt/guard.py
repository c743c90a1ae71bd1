"""Becomes the program that it is given, which from then on dies with the process that started it.

A killed agent could otherwise leave a server behind that holds an accelerator. It imports nothing of this project, so that it
starts quickly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_CANNOT_EXECUTE = 126  # what a shell ends with


def main(parent: str, *words: str) -> int:
    """Run `words` in the place of this process; comes back only if the system cannot execute them."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # it outlasts the exec
    if os.getppid() != int(parent):  # it died before the line above
        return 1
    try:
        os.execvp(words[0], words)  # noqa: S606 - a list of arguments, no shell
    except OSError as error:
        sys.stderr.write(f"{words[0]} cannot be executed here ({error.strerror})\n")
    return _CANNOT_EXECUTE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
