"""The oracle that the product lacks: many greedy tokens of a split model against those of the whole one, token by token.

The product's own checks compare one token after one token, which shows neither state that is lost between steps nor positions
that are wrong. Here a whole answer is compared, of prompts that cross the cut in several parts, asked again when a prefix cache
knows them, and asked at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from agent.errors import AgentError, InfraError
from agent.lanes.cuts import middle_cut, third_cuts
from agent.lanes.result import Findings, LaneResult, Status
from agent.prebuilt.ending import Trouble, conclude
from agent.prebuilt.openai import Answer
from agent.prebuilt.serving import Service, serve_split, serve_whole
from agent.prebuilt.stage_config import CONTEXT_A_LANE
from agent.prebuilt.target import Bench, Target

_SHARED = "A gardener writes down what she did today, in plain words and in the order in which she did it. "
# of different lengths, none a multiple of a chunk; two have a long beginning in common, which a prefix cache may share
PROMPTS = (
    "Count from one to fifty in words.",
    "Name all the months of the year, and for each of them say what the weather is like where you are.",
    _SHARED + "Continue her diary with what she did in the morning.",
    _SHARED
    + "Continue her diary with what she did in the evening, after the rain had stopped and the neighbours had left.",
)


def check_tokens(bench: Bench, target: Target, lane: str) -> LaneResult:
    """Two and three stages against the whole model."""
    findings, troubles = Findings(lane), list[Trouble]()
    topologies: list[tuple[int, ...]] = [(middle_cut(target.contract),)]
    if thirds := third_cuts(target.contract):
        topologies.append(thirds)
    try:
        whole = _answers_of_whole(bench, target, lane, findings)
        for cuts in topologies:
            if findings.problems:
                break
            _compare_split(bench, target, lane, cuts, whole, findings)
    except AgentError as error:
        status = Status.INFRA if isinstance(error, InfraError) else Status.FAIL
        troubles.append(Trouble(status=status, message=str(error)))
    places = " and ".join(", ".join(map(str, cuts)) for cuts in topologies)
    return conclude(findings, troubles, f"cut at {places}: {findings.comparisons} tokens equal the whole model's")


def compare_answers(whole: Answer, split: Answer, place: str, findings: Findings) -> None:
    """Compare two answers to one request: every piece, the count of tokens and the reason of the end."""
    findings.comparisons += min(len(whole.pieces), len(split.pieces))
    pairs = itertools.zip_longest(whole.pieces, split.pieces)
    first = next((index for index, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    if first is not None and whole.text == split.text:
        findings.notes.append(f"{place}: the same text in {len(split.pieces)} instead of {len(whole.pieces)} pieces")
    elif first is not None:
        ours, theirs = (_piece(answer, first) for answer in (whole, split))
        findings.problems.append(f"{place}: token {first + 1} is {theirs}, the whole model says {ours}")
    facts: tuple[tuple[str, object, object], ...] = (
        ("tokens in the prompt", whole.prompt_tokens, split.prompt_tokens),
        ("tokens in the answer", whole.completion_tokens, split.completion_tokens),
        ("the reason of the end", whole.finish, split.finish),
    )
    for what, wanted, found in facts:
        if found != wanted:
            findings.problems.append(f"{place}: {what}: {found}, for the whole model {wanted}")


def require_enough(answers: Sequence[Answer], tokens: int, findings: Findings) -> None:
    """The whole model's answers are worth comparing: none is empty, each counts its tokens, and one is as long as was asked."""
    for prompt, answer in zip(PROMPTS, answers, strict=False):
        if not answer.pieces or not answer.completion_tokens:
            findings.problems.append(
                f"the whole model answers nothing to {prompt[:40]!r}: two empty answers prove nothing"
            )
        if (answer.prompt_tokens or 0) + tokens > CONTEXT_A_LANE:
            findings.problems.append(
                f"{prompt[:40]!r} and {tokens} tokens more do not fit into a context of {CONTEXT_A_LANE}: ask for less with "
                "--tokens"
            )
    longest = max((answer.completion_tokens or 0 for answer in answers), default=0)
    if longest < tokens:
        findings.problems.append(
            f"the longest answer of the whole model has {longest} tokens, {tokens} are owed: choose a model that says more, "
            "or ask for less with --tokens"
        )


def _answers_of_whole(bench: Bench, target: Target, lane: str, findings: Findings) -> tuple[Answer, ...]:
    with bench.place(target.backend, lane, "whole") as place, serve_whole(bench, target, place) as service:
        answers = tuple(service.ask(prompt, bench.tokens) for prompt in PROMPTS)
        again = service.ask(PROMPTS[0], bench.tokens)
    require_enough(answers, bench.tokens, findings)
    if again != answers[0]:
        findings.problems.append(
            "the whole model answers the same request in two ways, so nothing can be compared with it"
        )
    return answers


def _compare_split(
    bench: Bench,
    target: Target,
    lane: str,
    cuts: Sequence[int],
    whole: Sequence[Answer],
    findings: Findings,
) -> None:
    name = f"cut at {', '.join(map(str, cuts))}"
    with (
        bench.place(target.backend, lane, f"split-{'-'.join(map(str, cuts))}") as place,
        serve_split(bench, target, cuts, place) as service,
    ):
        cold = [service.ask(prompt, bench.tokens) for prompt in PROMPTS]
        warm = [service.ask(prompt, bench.tokens) for prompt in reversed(PROMPTS)][::-1]
        at_once = _ask_at_once(service, bench.tokens)
    for index, answer in enumerate(whole):
        for when, answers in (("first time", cold), ("again", warm)):
            compare_answers(answer, answers[index], f"{name}, prompt {index + 1} {when}", findings)
    for index, answer in at_once:
        compare_answers(whole[index], answer, f"{name}, prompt {index + 1} among others", findings)
    cached = sum(answer.cached_tokens for answer in warm)
    findings.measurements.setdefault("cached_tokens", {})[name] = cached
    if not cached:
        findings.notes.append(f"{name}: the servers name no token that came from a prefix cache")


def _ask_at_once(service: Service, tokens: int) -> list[tuple[int, Answer]]:
    """All prompts at the same time, the first one twice: different and equal requests share the lanes."""
    indexes = [*range(len(PROMPTS)), 0]
    pool = ThreadPoolExecutor(len(indexes))
    try:
        answers = pool.map(lambda index: service.ask(PROMPTS[index], tokens), indexes)
        return list(zip(indexes, answers, strict=True))
    finally:
        pool.shutdown(
            wait=False, cancel_futures=True
        )  # at an error the servers are stopped, which ends the other requests


def _piece(answer: Answer, index: int) -> str:
    return repr(answer.pieces[index]) if index < len(answer.pieces) else "missing"
