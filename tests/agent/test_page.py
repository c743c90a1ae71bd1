"""The report page: everything a receipt says, as text, without the network."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.certify import Options, certify
from agent.lanes.result import LaneResult, Status
from agent.receipt.receipt import Receipt
from agent.reporters.page import render, write_page
from agent.reporters.plain import SilentReporter
from matrixgen.leg import Leg, Plan


@pytest.fixture
def receipt(options: Options, plans: Callable[..., Plan], legs: Callable[..., Leg]) -> Receipt:
    """What a short leg on real llama.cpp leaves."""
    return certify(plans("lfm2"), (legs("lfm2", "inspect", "contract", "dtype-matrix"),), options, SilentReporter())[0]


def test_the_page_shows_every_lane_and_layer_and_loads_nothing(receipt: Receipt, tmp_path: Path) -> None:
    """Each lane has a mark, each layer a box of its kind, each wire a row; no address of another host is in it."""
    page = render([receipt])
    for lane in receipt.lanes:
        assert lane.lane in page
        assert html.escape(lane.summary) in page
    assert len(re.findall(r'class="layer [AR]+ ', page)) == 16
    assert len(re.findall(r"<td>(?:f32|f16|q8)</td>", page)) == 3
    assert "://" not in page
    write_page([receipt], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page


def test_what_a_receipt_says_is_never_markup(receipt: Receipt) -> None:
    """A name or a problem with markup is shown as text; a red leg comes first and open."""
    evil = "<script>alert(1)</script>"
    red = LaneResult(lane="inspect", status=Status.FAIL, comparisons=1, summary=evil, problems=(evil, evil + "2"))
    bad = dataclasses.replace(receipt, leg="zz@cpu", family={**receipt.family, "family": evil}, lanes=(red,))
    page = render([receipt, bad])
    assert "<script>" not in page
    assert html.escape(evil) in page
    assert page.index('id="zz@cpu" open') < page.index(f'id="{receipt.leg}"')
