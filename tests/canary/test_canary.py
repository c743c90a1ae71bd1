"""The whole canary for real: llama.cpp is built, uploaded and certified, and the pin moves, or stays where restore is broken."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.canary.night import Night
from tests.canary.product import DROPPED, FAMILIES, PIN_FILE
from tests.canary.upstream import git

pytestmark = pytest.mark.slow

LEGS = {f"{family}@cpu" for family in (*FAMILIES, DROPPED)}
RECURRENT = {"lfm2@cpu", "rwkv7@cpu"}


def test_the_pin_moves_on_a_good_llama_and_stays_on_a_broken_one(night: Callable[[str], Night]) -> None:
    """Two nights: upstream is good, and the pin moves; then it restores less state than it says, and the pin stays."""
    first = night("700")
    base, good = first.product.base, first.upstream.head
    first.preflight()
    first.make_plan()
    first.build()
    assert first.certify() == dict.fromkeys(LEGS, 0)
    done = first.gate({"build": "success", "certify": "success"})
    assert (done.code, first.verdict["state"]) == (0, "green"), done.out
    for leg in LEGS - {f"{DROPPED}@cpu"}:
        receipt = first.receipt(leg)
        assert all(lane["status"] == "pass" and lane["comparisons"] > 0 for lane in receipt["lanes"])
        assert receipt["subject"]["kind"] == "weights"
    (refusal,) = first.receipt(f"{DROPPED}@cpu")["lanes"]
    assert (refusal["lane"], refusal["status"]) == ("refuse", "pass")
    assert first.refuse().endswith("1 of 1 dropped families are refused\n")
    assert first.verify().code == 0

    # over git into a copy, and through the API into the product itself: the same one file on the tested commit
    copy = first.folder / "copy.git"
    git(first.folder, "clone", "--quiet", "--bare", str(first.product.bare), str(copy))
    assert first.publish("--git", str(copy)).code == 0
    assert git(copy, "cat-file", "blob", f"main:{PIN_FILE}") == good
    assert git(copy, "diff", "--name-only", base, "main") == PIN_FILE
    done = first.publish("--check-run", "llama pin")
    assert done.code == 0, done.err
    assert first.product.pin == good
    assert first.product.git("rev-parse", "main^") == base
    assert first.product.changed(base, "main") == [PIN_FILE]
    assert first.api.checks[-1]["conclusion"] == "success"

    moved = first.product.update()
    broken = first.upstream.break_restore()
    second = night("701")
    second.make_plan()
    second.build()
    codes = second.certify()
    assert codes == {leg: int(leg in RECURRENT) for leg in LEGS}
    done = second.gate({"build": "success", "certify": "failure"})
    assert (done.code, second.verdict["state"], second.verdict["pin"]["commit"]) == (1, "red", broken), done.out
    assert {leg["leg"] for leg in second.verdict["legs"] if leg["state"] == "red"} == RECURRENT
    for leg in RECURRENT:
        failed = {lane["lane"] for lane in second.receipt(leg)["lanes"] if lane["status"] == "fail"}
        assert {"state-handoff", "cache-recurrent"} <= failed
    done = second.publish("--check-run", "llama pin")
    assert done.code == 1
    assert "only a green one" in done.err
    assert (second.product.tip(), second.product.pin) == (moved, good)
    assert second.api.checks[-1]["conclusion"] == "failure"
    assert json.loads((first.folder / "publication.json").read_text(encoding="utf-8"))["state"] == "published"
