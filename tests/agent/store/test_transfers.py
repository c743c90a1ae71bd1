"""What is shown of transfers, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
import time

import pytest

from agent.reporters.transfers import BarTransfers, PlainTransfers, show_transfers
from tests.agent.store.conftest import REPO, REVISION, Opener, fetch, model_bytes, wanted
from tests.agent.store.hub_server import Hub

DATA = model_bytes(3 * 2**20)
FILE = wanted(DATA, "Q4/[model].gguf")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_fetch_is_shown(hub: Hub, store: Opener, stream: io.StringIO) -> None:
    """A real fetch with a retry in it: the file, the note, and its brackets as they are."""
    hub.files[REPO, REVISION, FILE.path] = DATA
    hub.files[REPO, REVISION, "Q4/%5Bmodel%5D.gguf"] = DATA
    hub.head = [(500, {})]
    with show_transfers(stream) as progress:
        assert isinstance(progress, BarTransfers if stream.isatty() else PlainTransfers)
        assert fetch(store(f"hub:{hub.address}", progress=progress), [FILE]) == [DATA]
    shown = stream.getvalue()
    assert "server_failed" in shown
    assert stream.isatty() or "Q4/[model].gguf: from hub" in shown


def test_a_narrow_terminal_shows_all_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 80 columns the name is cut, not the bytes, the speed or the time that is left."""
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    with show_transfers(stream) as progress:
        name = "Q4/a-model-with-a-long-name-00001-of-00002.gguf"
        progress.begin(name, "from hub https://host", 0, 700 * 2**20)
        for _ in range(3):
            time.sleep(0.15)
            progress.advance(name, 50 * 2**20)
        time.sleep(0.3)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert re.search(r"a-model-with-a-long.*\u2026.* 150\.0/700\.0 MiB +[0-9.]+ [kMG]B/s +0:00:\d\d", shown)


def test_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line every ten seconds, whatever the number of blocks; small files are not mentioned."""
    clock = iter(float(second) for second in range(1000))
    monkeypatch.setattr("agent.reporters.transfers.time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    plain = PlainTransfers(stream)
    plain.begin("big", "from hub", 0, 100 * 2**20)
    for _ in range(50):
        plain.advance("big", 2 * 2**20)
    plain.end("big")
    plain.begin("small", "from hub", 0, 1000)
    plain.advance("small", 1000)
    plain.end("small")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "big: from hub, 100 MiB"
    assert 5 <= len(lines) <= 12, "about one for ten of the hundred seconds"
    assert all("of 100 MiB" in line for line in lines[1:])


def test_a_closed_stream_does_not_end_a_transfer() -> None:
    """Standard error may be closed; the bytes matter more."""
    stream = io.StringIO()
    plain = PlainTransfers(stream)
    stream.close()
    plain.note("text")
    plain.begin("big", "from hub", 0, 2**30)
