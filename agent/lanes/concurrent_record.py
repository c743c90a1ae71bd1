"""`concurrent-record`: the same prompt recorded by several slots at once, round after round, has one answer and leaks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent.engine.session import Logits, Session, Tokens
from agent.engine.transcript import Transcript, Turn
from agent.lanes.agreement import Agreement
from agent.lanes.cached import SLOTS, CachedSession, shape_of, with_cache
from agent.lanes.result import Findings, LaneResult
from agent.lanes.rounding import judge_rounding
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A prompt of a prefix and a suffix, recorded `rounds` times."""

    prefix_tokens: int
    suffix_tokens: int
    micro_batch: int
    decode_steps: int
    rounds: int

    def workload(self, *, branch: int = 0, trunk: int = 0) -> Workload:
        """The prompt of all slots, that of another branch, or one that shares nothing with it."""
        return Workload(
            segments=(self.prefix_tokens, self.suffix_tokens),
            decode_steps=self.decode_steps,
            micro_batch=self.micro_batch,
            branch=branch,
            trunk=trunk,
        )


@dataclass(frozen=True, kw_only=True)
class Params(Sizes):
    """`rounds` must exceed the sequences of the session, so that a leak of one a round runs out of them.

    `max_error` bounds the normalised error of a slot against the prompt alone: a batch of several sequences runs other kernels.
    """

    max_error: float


def run(subject: Subject, params: Params) -> LaneResult:
    """Run the rounds, then a prompt that nobody has recorded, then empty the cache."""
    findings = Findings("concurrent-record")
    shape = shape_of(subject, params.micro_batch)
    findings.expect(
        params.rounds > shape.sequences, f"{params.rounds} rounds cannot run out of {shape.sequences} sequences"
    )
    reference = subject.reference(params.workload())
    answers: set[int] = set()
    slots = [Agreement() for _ in range(SLOTS)]
    with subject.session(shape) as session:
        cached = with_cache(subject, session)
        for number in range(1, params.rounds + 1):
            # every round must record; what follows is decoded to its end in the first and in the last one
            turns = reference.turns if number in (1, params.rounds) else reference.turns[:2]
            answers |= _round(cached, turns, number, slots, findings)
        for slot, agreement in enumerate(slots):
            judge_rounding(subject, f"slot {slot}", agreement, params.max_error, findings)
        if len(answers) > 1:
            # every slot was held against the reference, so that what is left are ties within rounding
            findings.notes.append(f"one prompt has {len(answers)} next tokens, which are nearly equal in the reference")
        findings.expect(
            cached.cache.held == 1, f"one prefix was recorded by {SLOTS} slots and {cached.cache.held} states are held"
        )
        _unique_prompt(session, subject.reference(params.workload(trunk=1)), findings)
        cached.cache.clear()
        findings.expect(cached.cache.held == 0, f"{cached.cache.held} states are held by an empty cache")
    findings.measurements |= {"rounds": params.rounds, "slots": SLOTS, "answers": len(answers)}
    return findings.result(
        f"{params.rounds} rounds of {SLOTS} slots: {len(answers)} answer(s) within rounding, nothing leaked"
    )


def _round(
    cached: CachedSession, turns: Sequence[Turn], number: int, slots: Sequence[Agreement], findings: Findings
) -> set[int]:
    """All slots prefill the prefix at once and record it at once; the first round stores it, later ones also replace it."""
    session, cache = cached.session, cached.cache
    prefix, *rest = turns
    _forget(session)
    _together(session, prefix.tokens, prefix.position)
    for slot in range(SLOTS):
        store = cache.record if slot or number == 1 else cache.replace
        findings.expect(
            store(prefix.tokens.tolist(), slot),
            f"round {number}: slot {slot} found no room to record a recorded prefix",
        )
    first_tokens: set[int] = set()
    for turn in rest:
        for slot, logits in enumerate(_together(session, turn.tokens, turn.position)):
            slots[slot].compare(turn.logits, logits, turn.position)
            if turn is rest[0]:
                first_tokens.add(int(logits[-1].argmax()))
    return first_tokens


def _unique_prompt(session: Session, reference: Transcript, findings: Findings) -> None:
    """A prompt that shares nothing with the recorded one must still find a sequence and decode exactly."""
    _forget(session)
    agreement = Agreement()
    for turn in reference.turns:
        agreement.compare(turn.logits, session.decode(turn.tokens, turn.position, 0), turn.position)
    findings.comparisons += agreement.positions
    if not agreement.exact:
        findings.problems.append(f"a unique prompt after the rounds: {agreement.first}")


def _together(session: Session, tokens: Tokens, position: int) -> list[Logits]:
    return session.decode_together([(np.asarray(tokens), position, slot) for slot in range(SLOTS)])


def _forget(session: Session) -> None:
    for slot in range(SLOTS):
        session.remove_sequence(slot)
