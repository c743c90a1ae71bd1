"""`radix-cache`: record, longest-prefix lookup, branch, borrow, replace while borrowed and evict, interleaved; every hit equals a
cold prefill and everything that was taken comes back."""

from __future__ import annotations

from dataclasses import dataclass

from agent.engine.session import Session
from agent.engine.transcript import Turn
from agent.lanes.agreement import Agreement
from agent.lanes.cached import CachedSession, shape_of, with_cache
from agent.lanes.concurrent_record import Sizes
from agent.lanes.result import Findings, LaneResult
from agent.lanes.subject import Subject
from agent.radix.cache import PrefixCache, SnapshotCache
from agent.radix.index import Entry

_RECORDING, _FIRST, _SECOND, _SPARE = range(4)  # slots


@dataclass(frozen=True, kw_only=True)
class Params(Sizes):
    """`rounds`: how often the whole play is repeated over one cache."""


def run(subject: Subject, params: Params) -> LaneResult:
    """Play the same scenes again and again over one cache, in one session, or with snapshots in two."""
    findings = Findings("radix-cache")
    shape = shape_of(subject, params.micro_batch)
    branches = [subject.reference(params.workload(branch=branch)).turns for branch in (1, 2, 3)]
    with subject.session(shape) as session, subject.session(shape) as other:
        cached = with_cache(subject, session)
        target = other if isinstance(cached.cache, SnapshotCache) else session
        for number in range(1, params.rounds + 1):
            _play(cached, target, branches, f"round {number}", findings)
        cached.cache.clear()
        findings.expect(cached.cache.held == 0, f"{cached.cache.held} states are held by an empty cache")
        kind = type(cached.cache).__name__
    findings.measurements |= {"rounds": params.rounds, "cache": kind}
    return findings.result(
        f"{params.rounds} rounds over a {kind}: every hit equals a cold prefill, everything came back"
    )


def _play(
    cached: CachedSession, target: Session, branches: list[tuple[Turn, ...]], place: str, findings: Findings
) -> None:
    session, cache = cached.session, cached.cache
    first, second, third = branches
    prefix, suffix = first[0].tokens.tolist(), first[1].tokens.tolist()

    # a prefix, then the same prefix with a suffix: an entry below another one
    _clear_slots(session, target)
    _continue(session, _RECORDING, first[:1], f"{place}: cold prefix", findings)
    findings.expect(cache.record(prefix, _RECORDING), f"{place}: no room for the prefix")
    _continue(session, _RECORDING, first[1:2], f"{place}: cold suffix", findings)
    findings.expect(cache.record(prefix + suffix, _RECORDING), f"{place}: no room for the longer prefix")

    # two borrowers at once: one branches off the prefix, one goes on from the longer one; they take turns
    branching = _hit(cache, target, prefix + second[1].tokens.tolist(), _FIRST, len(prefix), place, findings)
    longer = _hit(cache, target, [*prefix, *suffix, 1], _SECOND, len(prefix) + len(suffix), place, findings)
    for ours, theirs in zip(second[1:], (*first[2:], None), strict=True):
        _continue(target, _FIRST, (ours,), f"{place}: branch off a prefix", findings)
        if theirs is not None:
            _continue(target, _SECOND, (theirs,), f"{place}: on from a longer prefix", findings)

    # the prefix is recorded again while it is borrowed, and a third branch takes the new one
    session.remove_sequence(_SPARE)
    _continue(session, _SPARE, first[:1], f"{place}: prefix again", findings)
    held = cache.held
    findings.expect(cache.replace(prefix, _SPARE), f"{place}: no room to replace a borrowed prefix")
    findings.expect(
        cache.held == held + 1, f"{place}: replacing a borrowed prefix kept {cache.held - held} more states, not 1"
    )
    target.remove_sequence(_SECOND)
    newer = _hit(cache, target, prefix + third[1].tokens.tolist(), _SECOND, len(prefix), place, findings)
    _continue(target, _SECOND, third[1:], f"{place}: branch off the replaced prefix", findings)

    # what is borrowed is never evicted; what came back is
    for entry in (branching, longer, newer):
        if entry is not None:
            cache.give_back(entry)
    findings.expect(cache.held == held, f"{place}: {cache.held} states are held after all came back, {held} before")
    while cache.evict():
        pass
    findings.expect(cache.held == 0, f"{place}: {cache.held} states outlive the eviction of everything")
    findings.expect(cache.restore(prefix, target, _FIRST) is None, f"{place}: an evicted prefix is still found")


def _hit(
    cache: PrefixCache, target: Session, tokens: list[int], slot: int, length: int, place: str, findings: Findings
) -> Entry[object] | None:
    entry = cache.restore(tokens, target, slot)
    found = 0 if entry is None else entry.length
    findings.expect(found == length, f"{place}: the longest recorded prefix has {found} tokens, {length} were recorded")
    last = target.last_position(slot)
    findings.expect(last == length - 1, f"{place}: the restored sequence ends at position {last}, not {length - 1}")
    return entry


def _continue(session: Session, slot: int, turns: tuple[Turn, ...], place: str, findings: Findings) -> None:
    agreement = Agreement()
    for turn in turns:
        agreement.compare(turn.logits, session.decode(turn.tokens, turn.position, slot), turn.position)
    findings.comparisons += agreement.positions
    if not agreement.exact:
        findings.problems.append(f"{place}: {agreement.first or 'nothing was compared'}")


def _clear_slots(*sessions: Session) -> None:
    for session in sessions:
        for slot in (_RECORDING, _FIRST, _SECOND, _SPARE):
            session.remove_sequence(slot)
