"""`edges`: prompts before, at and behind the model's own edges, alone and side by side with neighbours that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agent.engine.anatomy import Anatomy
from agent.engine.session import Part, Shape
from agent.engine.spare import session_of
from agent.engine.stage import Stage
from agent.engine.transcript import Transcript, Turn, transcribe
from agent.engine.wire import WireType
from agent.lanes.agreement import Agreement
from agent.lanes.chained import brought_something, send
from agent.lanes.cuts import class_cuts
from agent.lanes.edge_cases import Edge, edges_of
from agent.lanes.result import Findings, LaneResult
from agent.lanes.rounding import judge_rounding
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload

_FIRST_TURNS = 3  # a prefill and two greedy steps
_LAST = 64  # tokens of a long prompt whose logits are compared
_CELLS = 256  # llama.cpp rounds a context up to a multiple of it


@dataclass(frozen=True, kw_only=True)
class Params:
    """`max_tokens` is the longest run, `long_steps` are greedy steps after a full micro-batch; the rest as in `determinism`."""

    micro_batch: int
    decode_steps: int
    long_steps: int
    max_tokens: int
    max_error: float


def run(subject: Subject, params: Params) -> LaneResult:
    """Try every edge within the budget, each at another cut, and say which ones are beyond it."""
    findings = Findings("edges")
    edges = edges_of(
        subject.header,
        micro_batch=params.micro_batch,
        decode_steps=params.decode_steps,
        long_steps=params.long_steps,
    )
    within = [edge for edge in edges if edge.tokens <= params.max_tokens]
    for edge in edges:
        if edge not in within:
            findings.notes.append(
                f"{edge.why} ({edge.size} tokens) was not tried: {edge.tokens} tokens are more than {params.max_tokens}"
            )
    cuts = class_cuts(subject.contract)
    findings.expect(bool(cuts), "no cut is legal, so there is no split to try")
    tried = []
    for number, edge in enumerate(within if cuts else ()):
        cut = cuts[number % len(cuts)]
        worst = _try_edge(subject, edge, cut, params, findings)
        tried.append(
            {"size": edge.size, "why": edge.why, "micro_batch": edge.micro_batch, "cut": cut, "worst_error": worst}
        )
    findings.expect(bool(tried), f"no edge is within {params.max_tokens} tokens")
    findings.measurements["edges"] = tried
    return findings.result(f"{len(tried)} edges: {', '.join(str(edge.size) for edge in within)} tokens")


def _try_edge(subject: Subject, edge: Edge, cut: int, params: Params, findings: Findings) -> float:
    """Returns the largest normalised error of a prompt with neighbours against the same prompt alone."""
    context = -(-edge.tokens // _CELLS) * _CELLS
    # what is wrong before the last tokens of a long prompt is in the state that these see
    outputs = _LAST if edge.size > _LAST else 0
    anatomy = subject.anatomy_in(replace(subject.shape(edge.micro_batch), context=context, outputs=outputs))
    # a state that drifts shows late, and with the longest prompt alone; neighbours that come and go show at once
    steps = (params.decode_steps, params.decode_steps, edge.decode_steps)
    alone = [_transcribe(subject, anatomy, edge, cut, number, steps[number]) for number in range(len(edge.lengths))]
    for length, transcript in zip(edge.lengths, alone, strict=True):
        turns = transcript.turns if transcript is alone[-1] else transcript.turns[:_FIRST_TURNS]
        _split_alone(subject, anatomy, cut, turns, f"{edge.why}: a prompt of {length} tokens", findings)
    together = [transcript.turns[: 1 + params.decode_steps] for transcript in alone]
    worst = _side_by_side(subject, anatomy, cut, together, edge.why, params.max_error, findings)
    _take_back(subject, anatomy.shape, alone[-1], edge.why, params.max_error, findings)
    return worst


def _transcribe(subject: Subject, anatomy: Anatomy, edge: Edge, cut: int, number: int, steps: int) -> Transcript:
    """What the whole model says to one prompt, with nobody else there. No fault touches it."""
    workload = Workload(
        segments=(edge.lengths[number],), decode_steps=steps, micro_batch=edge.micro_batch, trunk=1 + number
    )
    with Stage(anatomy, session_of(subject.model, anatomy.shape), 0, subject.n_layer) as whole:
        return transcribe(whole, workload.prompt(subject.model.facts.n_vocab), workload.decode_steps, cuts=(cut,))


def _split_alone(
    subject: Subject, anatomy: Anatomy, cut: int, turns: Sequence[Turn], place: str, findings: Findings
) -> None:
    agreement = Agreement()
    with subject.stage(anatomy, cut, subject.n_layer) as upper:
        for turn in turns:
            frame = send(subject, anatomy.ports(cut, len(turn.tokens)), turn.frames[cut], WireType.F32)
            logits, _ = upper.decode(turn.tokens, turn.position, 0, frame)
            agreement.compare(turn.logits, logits, turn.position + len(turn.tokens) - len(logits))
        carried = brought_something(upper)
    findings.comparisons += agreement.positions
    if not agreement.exact:
        findings.problems.append(f"{place}, split at {cut}: {agreement.first}")
    findings.expect(carried, f"{place}, split at {cut}: the wire brought nothing that the stage did not have already")


def _side_by_side(
    subject: Subject,
    anatomy: Anatomy,
    cut: int,
    alone: Sequence[Sequence[Turn]],
    why: str,
    max_error: float,
    findings: Findings,
) -> float:
    """All prompts in one memory. The split must equal the whole bit for bit, and the whole each prompt alone within rounding."""
    split, against_alone = Agreement(), [Agreement() for _ in alone]
    with subject.stage(anatomy, 0, subject.n_layer) as whole, subject.stage(anatomy, cut, subject.n_layer) as upper:
        for number, parts in enumerate(_batches(alone)):
            said, frames = whole.decode_together(parts, leaving=(cut,))
            ports = anatomy.ports(cut, *(len(tokens) for tokens, _, _ in parts))
            logits, _ = upper.decode_together(parts, send(subject, ports, frames[cut], WireType.F32))
            for (tokens, start, sequence), ours, theirs in zip(parts, said, logits, strict=True):
                position = start + len(tokens) - len(ours)
                split.compare(ours, theirs, position)
                against_alone[sequence].compare(alone[sequence][number - sequence].logits, ours, position)
    findings.comparisons += split.positions
    if not split.exact:
        findings.problems.append(f"{why}: side by side, split at {cut}: {split.first}")
    return max(
        judge_rounding(subject, f"{why}: sequence {sequence} beside others", agreement, max_error, findings)
        for sequence, agreement in enumerate(against_alone)
    )


def _batches(alone: Sequence[Sequence[Turn]]) -> Iterator[list[Part]]:
    """The turns of all prompts, each beginning one batch after the one before, so that prefills meet neighbours that decode."""
    last = max(number + len(turns) for number, turns in enumerate(alone))
    for batch in range(last):
        yield [
            (turn.tokens, turn.position, sequence)
            for sequence, turns in enumerate(alone)
            if 0 <= batch - sequence < len(turns)
            for turn in (turns[batch - sequence],)
        ]


def _take_back(
    subject: Subject, shape: Shape, alone: Transcript, why: str, max_error: float, findings: Findings
) -> None:
    """Take back nothing, then the last token: llama.cpp does it, or says no and leaves everything as it was."""
    prompt, following = alone.turns[:2]
    last = len(prompt.tokens) - 1
    agreement = Agreement()
    with subject.session(replace(shape, tapped=False)) as session:
        session.decode(prompt.tokens, 0)
        session.remove_tail(0, last + 1)
        done = session.remove_tail(0, last)
        what = "taken back" if done else "kept"
        position, expected = session.last_position(0), last - done
        if not findings.expect(
            position == expected,
            f"{why}: memory ends at {position} after the last token was {what}, not at {expected}",
        ):
            return
        if done:
            agreement.compare(prompt.logits[-1:], session.decode(prompt.tokens[-1:], last), last)
        agreement.compare(following.logits, session.decode(following.tokens, last + 1), last + 1)
    judge_rounding(subject, f"{why}: after the last token was {what}", agreement, max_error, findings)
