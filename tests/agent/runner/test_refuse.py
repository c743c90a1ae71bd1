"""Dropped families: what counts as a refusal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from agent.certify import Options, certify
from agent.lanes.result import Status
from agent.reporters.plain import SilentReporter
from agent.runner import refuse
from matrixgen.leg import Plan

ENGINE = {"version": "1", "libraries": {}}


def answer(word: str) -> str:
    """What the child prints."""
    return json.dumps({"answer": word, "engine": ENGINE}) + "\n"


@pytest.mark.parametrize("architecture", ["gpt2", "chatglm", "starcoder2"])
def test_a_build_that_still_knows_the_architecture_is_red(architecture: str) -> None:
    """The stock llama.cpp reads on and misses a key: that is no refusal, and its words are in the result."""
    result, engine = refuse.check_refusal(architecture)
    assert result.status is Status.FAIL
    assert f"{architecture}." in result.summary
    assert "libllama.so" in engine["libraries"] or "libllama.dylib" in engine["libraries"]
    assert engine["version"]


def test_an_unknown_architecture_is_not_the_clean_refusal() -> None:
    """llama.cpp's own words for what it never knew are not those that users were promised."""
    result, _ = refuse.check_refusal("no-such-family")
    assert result.status is Status.FAIL
    assert "unknown model architecture" in result.summary


@pytest.mark.parametrize(
    ("code", "out", "err", "status"),
    [
        (0, answer("refused"), "llama_model_load: unsupported family 'gpt2'\n", Status.PASS),
        (0, "native words\n" + answer("refused"), "unsupported family\n", Status.PASS),
        (0, answer("loaded"), "unsupported family\n", Status.FAIL),
        (-6, "", "unsupported family\nGGML_ASSERT(false) failed\n", Status.FAIL),
        (0, answer("refused"), "", Status.FAIL),
    ],
)
def test_only_the_clean_words_without_a_load_or_a_death_pass(
    monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str, status: Status
) -> None:
    """A build of the product that refuses passes; one that loads, dies or says nothing does not."""
    # answers by hand; tests/canary asks a llama.cpp that really refuses a family
    done = subprocess.CompletedProcess(["child"], code, out, err)
    monkeypatch.setattr(refuse, "ask_child", lambda *_arguments: done)
    found = refuse.check_refusal("gpt2")
    assert found.result.status is status
    assert found.engine == (ENGINE if out else {})


def test_the_receipt_of_a_refusal_names_what_was_asked(plans: Callable[..., Plan], options: Options) -> None:
    """The gate believes no receipt that names no libraries, and there is no model here that could bring them in."""
    plan = plans("arcee")
    (receipt,) = certify(plan, plan.legs, options, SilentReporter())
    assert [lane.lane for lane in receipt.lanes] == ["refuse"]
    assert receipt.engine["libraries"]
    assert receipt.engine["version"]
