"""What a model says to one prompt that never changes, short enough to be recorded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agent.contracts import Answer
from agent.engine.anatomy import Anatomy
from agent.engine.session import Logits
from agent.engine.spare import session_of
from agent.engine.stage import Stage
from agent.engine.transcript import Transcript, transcribe
from agent.lanes.workload import Workload

WORKLOAD = Workload(segments=(40,), decode_steps=8, micro_batch=16)
"""That of most lanes, so that it costs nothing more."""

_SHOWN = 8  # logits that are recorded
_DIGITS = 4
_FORBIDDEN = -1e30  # a graph may forbid tokens by the least number that there is
_MOST = (
    0.02  # standard deviations; another CPU stays below a thousandth, and a twin's greedy token leads by more than this
)


def ask(anatomy: Anatomy) -> Answer:
    """The answer of the whole model."""
    facts = anatomy.model.facts
    with Stage(anatomy, session_of(anatomy.model, anatomy.shape), 0, facts.n_layer) as whole:
        return answer_of(transcribe(whole, WORKLOAD.prompt(facts.n_vocab), WORKLOAD.decode_steps))


def answer_of(transcript: Transcript) -> Answer:
    """The answer in a run of `WORKLOAD`."""
    return Answer(tokens=transcript.generated, logits=_summary(transcript.turns[0].logits[-1]))


def differences(recorded: Answer, now: Answer) -> Iterator[str]:
    """What is not as it was, as text."""
    if recorded.tokens != now.tokens:
        yield f"the twin answered {list(recorded.tokens)} and answers {list(now.tokens)}"
    if len(recorded.logits) != len(now.logits):
        yield f"{len(recorded.logits)} logits are recorded, not {len(now.logits)}"
        return
    worst = max((abs(before - after) for before, after in zip(recorded.logits, now.logits, strict=True)), default=0.0)
    if not worst <= _MOST:
        yield f"logits of the twin moved by {worst:.3g} standard deviations, more than another processor explains"


def _summary(logits: Logits) -> tuple[float, ...]:
    allowed = logits[logits > _FORBIDDEN].astype(np.float64)
    shown = allowed[np.linspace(0, len(allowed) - 1, _SHOWN).astype(int)]
    return tuple(round(float(value), _DIGITS) for value in (shown - allowed.mean()) / allowed.std())
