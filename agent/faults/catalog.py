"""All seeded faults by name: what they break, where they apply and which lanes must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.engine.contract import Contract
from agent.errors import FaultUnknown
from agent.faults import accelerators, alike, media, packages, subjects
from agent.lanes.subject import Subject
from agent.layer_kind import LayerKind


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

    def seed(self, sound: Subject) -> Subject:
        """A subject with this fault that shares the model and the references of a sound one."""
        faulty = self.subject(sound.model, sound.header, sound.expectations, sound.threads)
        faulty.share(sound)
        return faulty


def _always(_contract: Contract) -> bool:
    return True


def _keeps_recurrent(contract: Contract) -> bool:
    return any(kind.recurrent for kind in contract.state)


def _keeps_attention(contract: Contract) -> bool:
    return any(kind.attention for kind in contract.state)


def _keeps_both(contract: Contract) -> bool:
    return _keeps_attention(contract) and _keeps_recurrent(contract)


def _attention_first_stage(contract: Contract) -> bool:
    """Some stage begins with a layer without recurrent state and holds some later."""
    starts = (0, *contract.legal_cuts)
    return any(
        contract.recurrent_in(start, contract.n_layer) and not contract.recurrent_in(start, start + 1)
        for start in starts
    )


def _can_be_cut(contract: Contract) -> bool:
    return bool(contract.legal_cuts)


def _has_deepstack(contract: Contract) -> bool:
    """More than one layer hands on what a part of the embeddings was added to, so that one of them is above a cut."""
    adding = {crossing.layer for cut in contract.cuts for crossing in cut.frontier if "deepstack" in crossing.label}
    return len(adding) > 1


def _has_indexer(contract: Contract) -> bool:
    return any(names.count("k") > 1 for names in contract.caches)


def _classified_by_heads(contract: Contract) -> bool:
    """A hybrid of attention and recurrent layers, which most architectures tell by their counts of KV heads."""
    kinds = set(contract.state)
    return LayerKind.ATTENTION in kinds and LayerKind.RECURRENT in kinds


_EXPORTS = ("state-handoff", "cache-recurrent")
_RESTORES = ("state-handoff", "cache-resident", "cache-recurrent")
_SPLITS = ("single-step", "chain", "boundary-sweep", "dtype-matrix", "media-prefill", "edges")

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
        Fault(
            "indexer-lost",
            "a restore loses the indexer's keys of one layer (B4)",
            subjects.LostIndexer,
            _RESTORES,
            _has_indexer,
        ),
        Fault("wrong-sequence", "another sequence is exported and lent", subjects.WrongSequence, _RESTORES, _always),
        Fault(
            "import-does-nothing",
            "an import reports success and does nothing",
            subjects.LazyImport,
            ("state-handoff", "cache-recurrent", "media-prefill"),
            _always,
        ),
        Fault(
            "position-shifted",
            "decoding goes on one position too far",
            subjects.ShiftedPosition,
            (*_RESTORES, "media-prefill"),
            _always,
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
        Fault(
            "all-alike-wrong", "whole and split compute the same wrong thing", alike.AlikeWrong, ("contract",), _always
        ),
        Fault("export-too-short", "an export is shorter than the state", subjects.ShortExport, _EXPORTS, _always),
        Fault(
            "attention-left-out",
            "an export leaves out the KV pages",
            subjects.PartialExport,
            ("state-handoff", "cache-recurrent"),
            _keeps_both,
        ),
        Fault(
            "sequences-share-cells",
            "whatever is decoded goes to sequence 0",
            subjects.OneSequenceForAll,
            (*_RESTORES, "radix-cache"),
            _always,
        ),
        Fault(
            "stale-logits",
            "some decodes return older logits: a buffer freed while it was copied (B2)",
            subjects.StaleLogits,
            ("determinism", "single-step", "chain"),
            _always,
        ),
        Fault(
            "outputs-swapped",
            "rows of logits change places over several micro-batches (B6)",
            subjects.SwappedOutputs,
            ("determinism", "single-step", "chain", "boundary-sweep"),
            _always,
        ),
        Fault(
            "native-abort",
            "native code aborts on several micro-batches (B8)",
            subjects.Aborting,
            ("single-step", "chain", "boundary-sweep", "determinism"),
            _always,
        ),
        Fault(
            "nan-logits",
            "logits are NaN",
            subjects.NotANumber,
            (*_SPLITS, *_RESTORES, "determinism", "backend-parity"),
            _always,
        ),
        Fault(
            "thread-dependent",
            "bits depend on the number of threads",
            subjects.ThreadDependent,
            ("determinism",),
            _always,
        ),
        Fault(
            "shape-dependent",
            "a kernel for one token at a time is wrong",
            subjects.ShapeDependent,
            ("determinism",),
            _always,
        ),
        Fault("f16-on-f32-wire", "the wire is f16 where f32 was asked", subjects.HalfWire, _SPLITS, _always),
        Fault("frame-stale", "a stage is given the frame of the step before", subjects.StaleFrame, _SPLITS, _always),
        Fault(
            "stage-not-fed",
            "the last stage runs the whole model on the true tokens",
            subjects.WholeModel,
            ("single-step", "chain", "boundary-sweep"),
            _always,
        ),
        Fault(
            "duplicate-record-leaks",
            "two slots that record one prefix at once leak a state (H1)",
            subjects.LeakyIndex,
            ("concurrent-record", "radix-cache"),
            _always,
        ),
        Fault(
            "replace-forgets-borrowers",
            "replacing a borrowed prefix releases it (H1)",
            subjects.ForgetfulIndex,
            ("radix-cache",),
            _always,
        ),
        Fault(
            "lookup-overshoots",
            "a lookup returns a prefix that is not one",
            subjects.OvershootingIndex,
            ("radix-cache",),
            _always,
        ),
        Fault(
            "neighbours-mixed",
            "of three sequences in a batch, the third one gets what belongs to the second one",
            subjects.MixedNeighbours,
            ("edges",),
            _always,
        ),
        Fault(
            "take-back-does-nothing",
            "taking back a token reports success and does nothing",
            subjects.LazyTakeBack,
            ("edges",),
            _always,
        ),
        Fault(
            "answer-recorded-late",
            "a restored sequence is recorded before the last token of its answer is in it",
            subjects.LateRecord,
            ("conversation",),
            _always,
        ),
        Fault(
            "memory-wears-out",
            "logits are wrong after four prompts through one memory",
            subjects.WornMemory,
            ("conversation", "concurrent-record"),
            _always,
        ),
        Fault(
            "media-positions-permuted",
            "a stage takes the rows of an image for its columns",
            media.PermutedPositions,
            ("media-prefill",),
            _always,
        ),
        Fault(
            "media-deepstack-dropped",
            "a deepstack layer after a cut gets nothing of the embeddings",
            media.DroppedDeepstack,
            ("media-prefill",),
            _has_deepstack,
        ),
        Fault(
            "media-embeddings-shifted",
            "the first stage is given the embeddings one row too far",
            media.ShiftedEmbeddings,
            ("media-prefill",),
            _always,
        ),
        Fault(
            "media-stage-not-fed",
            "the last stage works out a block of embeddings from the block itself",
            media.UnfedStages,
            ("media-prefill",),
            _always,
        ),
        Fault(
            "accelerator-scaled",
            "the device's logits are a quarter too large",
            accelerators.ScaledDevice,
            ("backend-parity",),
            _always,
        ),
        Fault(
            "accelerator-noisy",
            "the device's logits are noisy",
            accelerators.NoisyDevice,
            ("backend-parity",),
            _always,
        ),
        Fault(
            "package-byte-flipped",
            "a part of the package has one byte wrong",
            packages.FlippedPart,
            ("package",),
            _always,
        ),
        Fault(
            "package-tensor-altered",
            "a tensor was wrong before its part was signed",
            packages.AlteredTensor,
            ("package",),
            _always,
        ),
        Fault("package-tensor-lost", "a layer's part lacks a tensor", packages.LostTensor, ("package",), _always),
        Fault("package-tensor-twice", "two parts hold one tensor", packages.TensorTwice, ("package",), _always),
        Fault(
            "package-experts-moved",
            "another layer's part holds a layer's experts",
            packages.MovedExperts,
            ("package",),
            _always,
        ),
        Fault(
            "stage-not-alone",
            "a stage's file holds the layers of other stages",
            packages.CrowdedStage,
            ("package",),
            _can_be_cut,
        ),
        Fault("stage-hollow", "a stage's file lacks its last layer", packages.HollowStage, ("package",), _always),
        Fault(
            "metadata-lie",
            "the metadata call every layer attention",
            subjects.LyingHeader,
            ("inspect", "cache-policy"),
            _classified_by_heads,
        ),
    )
}


def find_fault(name: str) -> Fault:
    """The fault called `name`.

    Raises:
        FaultUnknown: there is none.
    """
    try:
        return FAULTS[name]
    except KeyError:
        raise FaultUnknown(f"no seeded fault is called {name!r}; there are {', '.join(FAULTS)}") from None
