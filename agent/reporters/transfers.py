"""Progress of downloads and of hashing: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

_SECONDS_BETWEEN_LINES = 10.0
_MIB = 2**20
_BAR_WIDTH = 16


class PlainTransfers:
    """A line when work on a file begins, every ten seconds, and when it ends. Short work is not mentioned."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._files: dict[str, tuple[str, int, int, float]] = {}

    def begin(self, name: str, what: str, done: int, total: int) -> None:
        """Remember the file."""
        with self._lock:
            self._files[name] = (what, done, total, time.monotonic())
            if total >= _MIB:
                self._write(f"{name}: {what}, {total / _MIB:.0f} MiB")

    def advance(self, name: str, count: int) -> None:
        """Say how far it is, now and then."""
        with self._lock:
            what, done, total, said = self._files.get(name, ("", 0, 0, time.monotonic()))
            done += count
            if time.monotonic() - said >= _SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                self._write(f"{name}: {what}, {done / _MIB:.0f} of {total / _MIB:.0f} MiB")
            self._files[name] = (what, done, total, said)

    def end(self, name: str) -> None:
        """Forget the file."""
        with self._lock:
            self._files.pop(name, None)

    def note(self, text: str) -> None:
        """Write the line."""
        with self._lock:
            self._write(text)

    def _write(self, text: str) -> None:
        with contextlib.suppress(ValueError, OSError):  # a closed standard error must not end a transfer
            self._stream.write(text + "\n")
            self._stream.flush()


class BarTransfers:
    """A bar a file."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def begin(self, name: str, what: str, done: int, total: int) -> None:
        """Draw the bar, or draw it anew."""
        from rich.markup import escape

        self.end(name)
        with self._lock:
            text = f"{escape(name.rpartition('/')[2])} [dim]{escape(what)}[/]"
            self._tasks[name] = self._bars.add_task(text, total=total, completed=done)

    def advance(self, name: str, count: int) -> None:
        """Move it."""
        with self._lock:
            if name in self._tasks:
                self._bars.advance(self._tasks[name], count)

    def end(self, name: str) -> None:
        """Take it away."""
        with self._lock:
            if name in self._tasks:
                self._bars.remove_task(self._tasks.pop(name))

    def note(self, text: str) -> None:
        """Print above the bars."""
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def show_transfers(stream: TextIO) -> Iterator[PlainTransfers | BarTransfers]:
    """Show transfers on `stream` for the length of a block."""
    if not stream.isatty():
        yield PlainTransfers(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.table import Column

    columns = (  # on a narrow terminal the name gives way, not the numbers
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=_BAR_WIDTH),
        DownloadColumn(binary_units=True, table_column=Column(no_wrap=True, min_width=14)),
        TransferSpeedColumn(table_column=Column(no_wrap=True, min_width=9)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=Console(file=stream), transient=True, expand=True) as bars:
        yield BarTransfers(bars)
