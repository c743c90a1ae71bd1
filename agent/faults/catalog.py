"""All seeded faults by name: what they break, where they apply and which lanes must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.engine.contract import Contract
from agent.errors import FaultUnknown
from agent.faults import subjects
from agent.lanes.subject import Subject


@dataclass(frozen=True)
class Fault:
    """One way to be wrong.

    Attributes:
        description: what the library, the transport or the file does.
        subject: the subject that does it.
        lanes: lanes that must not pass; of these the ones that the family owes.
        applies: whether a model with this contract can show it.
    """

    name: str
    description: str
    subject: type[Subject]
    lanes: tuple[str, ...]
    applies: Callable[[Contract], bool]


def _always(_contract: Contract) -> bool:
    return True


def _keeps_recurrent(contract: Contract) -> bool:
    return any(kind.recurrent for kind in contract.state)


def _keeps_attention(contract: Contract) -> bool:
    return any(kind.attention for kind in contract.state)


def _attention_first_stage(contract: Contract) -> bool:
    """Some stage begins with a layer without recurrent state and holds some later."""
    starts = (0, *contract.legal_cuts)
    return any(
        contract.recurrent_in(start, contract.n_layer) and not contract.recurrent_in(start, start + 1)
        for start in starts
    )


_RESTORES = ("state-handoff", "cache-resident", "cache-recurrent")
_SPLITS = ("single-step", "chain", "boundary-sweep", "dtype-matrix")

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "recurrent-state-dropped",
            "a restore loses the state of one recurrent layer",
            subjects.DroppedRecurrentState,
            ("state-handoff", "cache-recurrent"),
            _keeps_recurrent,
        ),
        Fault(
            "kv-byte-flipped",
            "a restore gets one byte of a KV page wrong",
            subjects.FlippedKvByte,
            _RESTORES,
            _keeps_attention,
        ),
        Fault("wrong-sequence", "another sequence is exported and lent", subjects.WrongSequence, _RESTORES, _always),
        Fault(
            "import-does-nothing",
            "an import reports success and does nothing",
            subjects.LazyImport,
            ("state-handoff", "cache-recurrent"),
            _always,
        ),
        Fault(
            "position-shifted", "decoding goes on one position too far", subjects.ShiftedPosition, _RESTORES, _always
        ),
        Fault(
            "boundary-tensor-forgotten",
            "one tensor of the frontier does not cross",
            subjects.ForgottenTensor,
            _SPLITS,
            _always,
        ),
        Fault("q8-on-f32-wire", "the wire is q8 where f32 was asked", subjects.QuantisedWire, _SPLITS, _always),
        Fault(
            "noisy-node", "every third session computes one node wrong", subjects.NoisyNode, ("determinism",), _always
        ),
        Fault(
            "first-layer-only",
            "the cache is chosen by the first layer of a stage",
            subjects.FirstLayerOnly,
            ("cache-policy",),
            _attention_first_stage,
        ),
        Fault(
            "other-architecture",
            "the file is not of the row's architecture",
            subjects.OtherArchitecture,
            ("inspect",),
            _always,
        ),
        Fault(
            "frontier-changed",
            "another tensor crosses than was recorded",
            subjects.ChangedFrontier,
            ("contract",),
            _always,
        ),
    )
}


def subject_type(fault: str | None) -> type[Subject]:
    """The subject to run with: the true one, or one with a seeded fault.

    Raises:
        FaultUnknown: there is no such fault.
    """
    if fault is None:
        return Subject
    try:
        return FAULTS[fault].subject
    except KeyError:
        raise FaultUnknown(f"no seeded fault is called {fault!r}; there are {', '.join(FAULTS)}") from None
