"""`conversation`: turns that grow over the prefix cache, with other prompts in the same memory between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agent.engine.session import Logits, Session, Tokens
from agent.engine.transcript import Turn
from agent.lanes.agreement import Agreement
from agent.lanes.cached import SLOTS, CachedSession, shape_of, with_cache
from agent.lanes.result import Findings, LaneResult
from agent.lanes.rounding import judge_rounding
from agent.lanes.subject import Subject
from agent.lanes.workload import Workload
from agent.radix.cache import PrefixCache
from agent.radix.index import Entry

# more than the cache keeps and than there are slots, so that each is recorded anew every time, and in another slot
_OTHERS = SLOTS + 1
_POOLS = "attention.indexer.kpool"  # glm5-next

Exchange = list[Turn]  # a turn of the conversation: what is asked in one decode, then one for each token of the answer


@dataclass(frozen=True, kw_only=True)
class Params:
    """The first of `turns` asks `prompt_tokens`, each later one `turn_tokens`; `decode_steps` greedy steps answer.

    `others` prompts of `turn_tokens` are decoded, recorded and evicted between two turns: many of them make a soak.
    `max_error` bounds the normalised error of a position against one prefill of the whole conversation.
    """

    turns: int
    prompt_tokens: int
    turn_tokens: int
    decode_steps: int
    others: int
    micro_batch: int
    max_error: float

    def workload(self, *segments: int, trunk: int = 0) -> Workload:
        """What is asked, segment by segment; another trunk shares nothing."""
        return Workload(segments=segments, decode_steps=self.decode_steps, micro_batch=self.micro_batch, trunk=trunk)


@dataclass(frozen=True)
class _Cold:
    """What the model says without a cache: turn by turn, to the whole conversation at once, and to the other prompts."""

    exchanges: list[Exchange]
    whole: Logits
    others: list[Turn]


def run(subject: Subject, params: Params) -> LaneResult:
    """Play the conversation without a cache, then over one that is busy with others; at the end everything came back."""
    findings = Findings("conversation")
    findings.expect(params.turns > 1, "a conversation of one turn restores nothing")
    cold = _play_cold(subject, params)
    with subject.session(shape_of(subject, params.micro_batch)) as session:
        cached = with_cache(subject, session)
        error = _play(subject, cached, cold, params, findings)
        cached.cache.clear()
        findings.expect(cached.cache.held == 0, f"{cached.cache.held} states are held by an empty cache")
        for slot in range(SLOTS):
            session.remove_sequence(slot)
        left = [sequence for sequence in range(session.shape.sequences) if session.last_position(sequence) >= 0]
        findings.expect(not left, f"sequences {left} are in memory after everything was removed")
        kind = type(cached.cache).__name__
    others = params.others * (params.turns - 1)
    findings.measurements |= {"turns": params.turns, "others": others, "error": error, "cache": kind}
    return findings.result(
        f"{params.turns} turns over a {kind}, {others} other prompts between them: as without a cache; "
        f"{error:.1e} from one prefill"
    )


def _play_cold(subject: Subject, params: Params) -> _Cold:
    """Every prompt in a sequence of its own, of a context that nobody has used before. No fault touches it."""
    n_vocab = subject.model.facts.n_vocab
    asked = params.workload(params.prompt_tokens, *(params.turn_tokens,) * (params.turns - 1)).prompt(n_vocab)
    others = []
    with Session(subject.model, shape_of(subject, params.micro_batch)) as session:
        exchanges = _converse(session, asked, params.decode_steps)
        for other in range(1, 1 + _OTHERS):
            (tokens,) = params.workload(params.turn_tokens, trunk=other).prompt(n_vocab)
            others.append(Turn(tokens, 0, session.decode(tokens, 0, other), {}))
        conversation = np.concatenate([turn.tokens for exchange in exchanges for turn in exchange])
        whole = session.decode(conversation, 0, 1 + _OTHERS)
    return _Cold(exchanges, whole, others)


def _converse(session: Session, asked: Sequence[Tokens], decode_steps: int) -> list[Exchange]:
    exchanges: list[Exchange] = []
    position = 0
    for tokens in asked:
        exchange: Exchange = []
        following = tokens
        for _ in range(1 + decode_steps):
            exchange.append(Turn(following, position, session.decode(following, position), {}))
            position += len(following)
            following = np.array([exchange[-1].logits[-1].argmax()], dtype=np.int32)
        exchanges.append(exchange)
    return exchanges


def _play(subject: Subject, cached: CachedSession, cold: _Cold, params: Params, findings: Findings) -> float:
    """Each turn goes on from what the one before recorded. Returns the error against one prefill of everything."""
    session, cache = cached.session, cached.cache
    others = ((count % SLOTS, cold.others[count % _OTHERS]) for count in itertools.count())
    against_whole = Agreement()
    history: list[int] = []
    borrowed: list[Entry[object] | None] = []
    for number, exchange in enumerate(cold.exchanges):
        place, slot = f"turn {number + 1}", number % SLOTS
        if history:
            # whoever goes on with a conversation borrows it: others take its slot, and do not evict it
            borrowed.append(cache.restore(history, session, slot))
            _let_pass(subject, cached, itertools.islice(others, params.others), f"before {place}", params, findings)
            session.remove_sequence(slot)
            borrowed.append(cache.restore([*history, *exchange[0].tokens.tolist()], session, slot))
            if not _whole_history(borrowed[-1], len(history), session.last_position(slot), place, findings):
                break
        exact = _speak(session, slot, exchange, cold.whole, against_whole)
        _expect_equal(subject, exact, place, params, findings)
        history += [token for turn in exchange for token in turn.tokens.tolist()]
        findings.expect(cache.record(history, slot), f"{place}: no room to record what was said")
        _give_back(cache, borrowed)
    _give_back(cache, borrowed)
    return judge_rounding(subject, "against one prefill", against_whole, params.max_error, findings)


def _give_back(cache: PrefixCache, borrowed: list[Entry[object] | None]) -> None:
    while borrowed:
        if (entry := borrowed.pop()) is not None:
            cache.give_back(entry)


def _let_pass(
    subject: Subject,
    cached: CachedSession,
    others: Iterable[tuple[int, Turn]],
    place: str,
    params: Params,
    findings: Findings,
) -> None:
    """Prompts that share nothing with the conversation, each in a slot that was used before. The cache evicts for room."""
    session, cache = cached.session, cached.cache
    for slot, prompt in others:
        agreement = Agreement()
        session.remove_sequence(slot)
        agreement.compare(prompt.logits, session.decode(prompt.tokens, 0, slot), 0)
        _expect_equal(subject, agreement, f"{place}, another prompt", params, findings)
        findings.expect(cache.record(prompt.tokens.tolist(), slot), f"{place}: no room to record another prompt")
    while cache.evict():
        pass
    findings.expect(cache.held == 1, f"{place}: {cache.held} states are held after all others were evicted, not 1")


def _whole_history(entry: Entry[object] | None, length: int, last: int, place: str, findings: Findings) -> bool:
    """True if all of the history was found and restored; without it the turn cannot be played."""
    found = 0 if entry is None else entry.length
    return findings.expect(
        found == length, f"{place}: of a history of {length} tokens {found} were found"
    ) and findings.expect(
        last == length - 1, f"{place}: the restored sequence ends at position {last}, not {length - 1}"
    )


def _speak(session: Session, slot: int, exchange: Exchange, whole: Logits, against_whole: Agreement) -> Agreement:
    """One turn, compared with the same without a cache; its difference from one prefill of everything is collected."""
    exact = Agreement()
    for turn in exchange:
        said = session.decode(turn.tokens, turn.position, slot)
        exact.compare(turn.logits, said, turn.position)
        against_whole.compare(whole[turn.position :][: len(said)], said, turn.position)
    return exact


def _expect_equal(subject: Subject, agreement: Agreement, place: str, params: Params, findings: Findings) -> None:
    """Bit for bit; but pools of an indexer are numbered over all sequences, so neighbours decide the order of those that tie."""
    if subject.header.key(_POOLS) in subject.header.metadata:
        judge_rounding(subject, place, agreement, params.max_error, findings)
        return
    findings.comparisons += agreement.positions
    if not agreement.exact:
        findings.problems.append(f"{place}: {agreement.first or 'nothing was compared'}")
