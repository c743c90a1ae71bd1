"""Which cache a family may use: decided by the state that its layers keep, never by a name, a path or the first layer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from agent.layer_kind import LayerKind


class CachePolicy(StrEnum):
    """Payload of the prefix cache (words of the parity document)."""

    RESIDENT_KV = "ResidentKv"
    KV_RECURRENT = "KvRecurrent"
    DISABLED = "disabled"


def select_policy(kinds: Sequence[LayerKind]) -> CachePolicy:
    """The policy of a range of layers. Every layer is looked at; one unknown state disables reuse."""
    if not kinds or LayerKind.UNKNOWN in kinds:
        return CachePolicy.DISABLED
    if LayerKind.RECURRENT in kinds or LayerKind.BOTH in kinds:
        return CachePolicy.KV_RECURRENT
    return CachePolicy.RESIDENT_KV if LayerKind.ATTENTION in kinds else CachePolicy.DISABLED
