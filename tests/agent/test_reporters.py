"""What people see: progress, a table, and every problem once."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent.lanes.result import LaneResult, Status
from agent.receipt import receipt as receipts
from agent.receipt.receipt import Receipt
from agent.receipt.surroundings import describe_runner
from agent.reporters.console import make_console
from agent.reporters.live import MARKS, LiveReporter
from agent.reporters.plain import PlainReporter, SilentReporter
from agent.reporters.summary import print_summary, shorten_state
from tests.agent.conftest import Legs


def result(lane: str, status: Status = Status.PASS, problem: str = "cut 4: differs", **measurements: Any) -> LaneResult:
    """A lane."""
    return LaneResult(
        lane=lane,
        status=status,
        comparisons=5,
        summary="well" if status is Status.PASS else problem,
        problems=() if status is Status.PASS else (problem,),
        measurements=measurements,
        seconds=0.5,
    )


def receipt(*lanes: LaneResult, leg: str = "qwen3-dense@cpu", architecture: str = "qwen3") -> Receipt:
    """A receipt."""
    return Receipt(
        leg=leg,
        plan="sha256:" + "0" * 64,
        event="nightly",
        family={"family": leg.partition("@")[0], "arch": "qwen3"},
        pin={},
        build_key="b",
        subject=receipts.TestedSubject(
            kind="twin", architecture=architecture, files=(), recipe=None, proves="", does_not_prove=""
        ),
        engine={},
        device={"name": "CPU"},
        nodes_by_device={},
        agent="0",
        runner=describe_runner(),
        run={},
        started_at="2026-11-29T18:00:00Z",
        finished_at="2026-11-29T18:00:01Z",
        lanes=lanes,
        log="",
    )


def shown(*made: Receipt, folder: str = "receipts") -> str:
    """The summary as text."""
    console = make_console()
    console.file, console.width = io.StringIO(), 160
    print_summary(console, made, Path(folder), 12.3)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_summary_has_a_row_a_leg() -> None:
    """Family, architecture, layers, state, cuts, a mark a lane, comparisons and seconds."""
    inspect = result("inspect", layers=8, state="R,R,R,A,R,R,R,A", legal_cuts=[1, 2, 3])
    text = shown(receipt(inspect, result("chain")))
    (row,) = [line.split() for line in text.splitlines() if line.startswith("qwen3-dense")]
    assert row == ["qwen3-dense", "qwen3", "8", "3R", "1A", "3R", "1A", "3", "✓✓", "10", "1.0"]
    assert "1 pass; twin on CPU, 12.3 s; receipts in receipts" in text


def test_the_summary_counts_what_is_not_green() -> None:
    """Passes, fails and infra are told apart, and each problem is named with its leg."""
    text = shown(
        receipt(result("chain")),
        receipt(result("chain", Status.FAIL, "cut 2: differs"), leg="mamba@cpu"),
        receipt(result("chain", Status.INFRA, "no device"), leg="rwkv7@cpu"),
    )
    assert "1 pass, 1 fail, 1 infra" in text
    assert "✗ mamba@cpu: chain: cut 2: differs" in text
    assert "! rwkv7@cpu: chain: no device" in text


@pytest.mark.parametrize("words", ["[/red]", "[bold", "[link=x]y[/link]", "][", ":x:"])
def test_words_of_others_are_not_markup(words: str) -> None:
    """Architectures, problems and folders are printed as they are."""
    text = shown(
        receipt(result("chain", Status.FAIL, f"problem {words}"), architecture=f"x{words}"), folder=f"f{words}"
    )
    assert f"problem {words}" in text
    assert f"x{words}" in text
    assert f"receipts in f{words}" in text


@pytest.mark.parametrize(
    ("state", "short"),
    [
        ("A", "1A"),
        ("A,A,A", "3A"),
        ("R,R,A,AR", "2R 1A 1AR"),
        ("?", "?"),
        (",".join("RA" * 10), "1R 1A 1R 1A 1R 1A …"),
    ],
)
def test_state_is_shortened(state: str, short: str) -> None:
    """Runs are counted, and long alternations cut."""
    assert shorten_state(state) == short


def test_plain_progress_is_a_line_a_leg(legs: Legs) -> None:
    """Status, lanes passed of those owed, comparisons and time; problems come with the table at the end."""
    stream, leg = io.StringIO(), legs("qwen3-dense", "inspect", "chain")
    reporter = PlainReporter(stream)
    reporter.leg_started(leg)
    reporter.lane_started(leg, "inspect")
    for lane in (result("inspect"), result("chain", Status.FAIL)):
        reporter.lane_finished(leg, lane)
    reporter.leg_finished(leg, receipt(result("inspect"), result("chain", Status.FAIL)))
    assert stream.getvalue() == "fail   qwen3-dense@cpu: 1 of 2 lanes, 10 comparisons, 1.0 s\n"


def test_live_progress_ticks_lanes(legs: Legs) -> None:
    """On a terminal, a leg is shown once it runs, with a mark a lane; the others are counted."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    first, second = legs("qwen3-dense", "inspect", "chain"), legs("mamba", "inspect")
    with LiveReporter(console, (first, second)) as reporter:
        reporter.leg_started(first)
        reporter.lane_started(first, "inspect")
        assert "1 more" in rendered(reporter)
        assert "▸ ·" in rendered(reporter)
        reporter.lane_finished(first, result("inspect"))
        reporter.lane_finished(first, result("chain", Status.FAIL))
        assert "✓ ✗" in rendered(reporter)
        reporter.leg_finished(first, receipt(result("inspect"), result("chain", Status.FAIL)))
        assert "fail 1.0 s" in rendered(reporter)
        reporter.leg_started(second)
        assert "more" not in rendered(reporter)


def rendered(reporter: LiveReporter) -> str:
    """What the terminal shows now."""
    console = Console(file=io.StringIO(), width=120)
    console.print(reporter._draw())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_status_has_a_mark() -> None:
    """None is shown as another."""
    assert set(MARKS) == set(Status)
    assert len({mark for mark, _ in MARKS.values()}) == len(Status)


def test_silence_says_nothing(legs: Legs, capsys: pytest.CaptureFixture[str]) -> None:
    """For `--json`."""
    reporter, leg = SilentReporter(), legs("qwen3-dense", "inspect")
    reporter.leg_started(leg)
    reporter.lane_started(leg, "inspect")
    reporter.lane_finished(leg, result("inspect", Status.FAIL))
    reporter.leg_finished(leg, receipt(result("inspect", Status.FAIL)))
    assert capsys.readouterr() == ("", "")
