"""Dropped families: what counts as a refusal."""

from __future__ import annotations

import subprocess

import pytest

from agent.lanes.result import Status
from agent.runner import refuse


@pytest.mark.parametrize("architecture", ["gpt2", "chatglm", "starcoder2"])
def test_a_build_that_still_knows_the_architecture_is_red(architecture: str) -> None:
    """The stock llama.cpp reads on and misses a key: that is no refusal, and its words are in the result."""
    result = refuse.check_refusal(architecture)
    assert result.status is Status.FAIL
    assert f"{architecture}." in result.summary


def test_an_unknown_architecture_is_not_the_clean_refusal() -> None:
    """llama.cpp's own words for what it never knew are not those that users were promised."""
    result = refuse.check_refusal("no-such-family")
    assert result.status is Status.FAIL
    assert "unknown model architecture" in result.summary


@pytest.mark.parametrize(
    ("code", "out", "err", "status"),
    [
        (0, "refused\n", "llama_model_load: unsupported family 'gpt2'\n", Status.PASS),
        (0, "loaded\n", "unsupported family\n", Status.FAIL),
        (-6, "", "unsupported family\nGGML_ASSERT(false) failed\n", Status.FAIL),
        (0, "refused\n", "", Status.FAIL),
    ],
)
def test_only_the_clean_words_without_a_load_or_a_death_pass(
    monkeypatch: pytest.MonkeyPatch, code: int, out: str, err: str, status: Status
) -> None:
    """A build of the product that refuses passes; one that loads, dies or says nothing does not."""
    # no build of the product can be had here, so its answers are given by hand
    answer = subprocess.CompletedProcess(["child"], code, out, err)
    monkeypatch.setattr(refuse, "ask_child", lambda *_arguments: answer)
    assert refuse.check_refusal("gpt2").status is status
