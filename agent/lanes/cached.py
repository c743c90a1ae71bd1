"""The prefix cache that a family may use, over a session with room for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.engine.session import Session, Shape
from agent.lanes.policy import CachePolicy
from agent.lanes.subject import Subject
from agent.radix.cache import PrefixCache, ResidentCache, SnapshotCache
from agent.radix.pool import SequencePool

SLOTS = 4  # sequences that decode
_KEPT = 4  # sequences, or snapshots, that the cache may hold


@dataclass(frozen=True)
class CachedSession:
    """A session whose first `SLOTS` sequences decode, and the cache over it."""

    session: Session
    cache: PrefixCache


def shape_of(subject: Subject, micro_batch: int) -> Shape:
    """The shape of a cached session, which runs as in a server: nobody looks at its nodes."""
    return replace(subject.shape(micro_batch), sequences=SLOTS + _KEPT, tapped=False)


def with_cache(subject: Subject, session: Session) -> CachedSession:
    """The cache that the state of this model's layers allows."""
    if subject.policy(subject.contract.state) is CachePolicy.RESIDENT_KV:
        return CachedSession(session, ResidentCache(session, SequencePool(SLOTS, SLOTS + _KEPT - 1), subject.index))
    return CachedSession(session, SnapshotCache(session, _KEPT, subject.index))
