"""A session: one llama.cpp context, its memory, and a tap on the nodes that it computes."""

from __future__ import annotations

import ctypes
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from agent.engine.embeddings import Embeddings, Vectors
from agent.engine.library import load_library
from agent.engine.model import Model
from agent.engine.resource import Resource
from agent.errors import ContextFailed, DecodeFailed, ParamsInvalid, StateRefused

Logits = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int32]
Part = tuple[Tokens, int, int]  # tokens, the position of the first one, and the sequence that they belong to

# llama.h: LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY, the recurrent and sliding-window part of a sequence
PARTIAL_STATE = 1


class Tap(Protocol):
    """What looks at, and may change, the nodes of a decode.

    Attributes:
        wanted: places, in the order of execution, of the nodes whose data it wants; None to be asked about each node. A
            set is much faster, since most nodes are then settled without a call.
    """

    wanted: Container[int] | None

    def ask(self, ordinal: int, pointer: int) -> bool:
        """Before a node is computed: is its data wanted?"""

    def done(self, ordinal: int, pointer: int) -> None:
        """A wanted node has been computed."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Everything of a context that may change the bits of a result.

    Attributes:
        micro_batch: tokens in one graph (`n_ubatch`).
        threads: of the CPU backend.
        context: cells a sequence (`n_ctx / n_seq_max`).
        sequences: how many sequences the memory holds (`n_seq_max`). Some architectures of the pin (kimi-linear) abort
            unless it divides `micro_batch`.
        tapped: nodes can be looked at. Without, llama.cpp computes a graph in one go, as it does in a server.
        outputs: of how many tokens of a sequence at most, the last ones of a decode, logits are computed; 0 for all. Those of
            a thousand tokens of a large vocabulary take gigabytes.
    """

    micro_batch: int
    threads: int = 1
    context: int = 256
    sequences: int = 4
    tapped: bool = True
    outputs: int = 0


class Session(Resource):
    """A context of a model. The bits of its results depend on its `Shape`, its tokens and nothing else.

    Attributes:
        sound: no decode has failed in it.
    """

    def __init__(self, model: Model, shape: Shape) -> None:
        """Create the context.

        Raises:
            ContextFailed: llama.cpp returned none.
        """
        self._llama: Any = load_library().llama
        self.model = model
        self.shape = shape
        self._tap: Tap | None = None
        self._wanted: Container[int] | None = ()
        self._ordinal = 0
        self._failure: BaseException | None = None
        self.sound = True

        params = self._llama.llama_context_default_params()
        params.n_ctx = shape.context * shape.sequences
        params.n_batch = shape.context
        params.n_ubatch = shape.micro_batch
        params.n_seq_max = shape.sequences
        params.n_threads = params.n_threads_batch = shape.threads
        params.no_perf = True
        params.swa_full = False  # as servers run it: a sliding window keeps its window, not the whole context
        if shape.tapped:
            self._callback = self._llama.ggml_backend_sched_eval_callback(self._on_node)
            params.cb_eval = self._callback
        self.handle: Any = self._llama.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise ContextFailed(
                f"llama.cpp creates no context for {model.path.name} "
                f"({params.n_ctx} cells, micro-batch {shape.micro_batch}): see its message above"
            )
        self._memory = self._llama.llama_get_memory(self.handle)

    # -- decoding ---------------------------------------------------------------------------------------------------------

    def decode(self, tokens: Tokens, position: int, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode `tokens` at `position` of `sequence` and return the logits of every one of them, or of the last `outputs`.

        Returns:
            float32, (len(tokens), n_vocab), or fewer rows.

        Raises:
            DecodeFailed: `llama_decode` did not return 0.
            ParamsInvalid: the sequence would not fit into its cells.
        """
        positions = np.arange(position, position + len(tokens), dtype=np.int32)
        return self._decode(tokens, positions, np.full(len(tokens), sequence, dtype=np.int32), tap)

    def decode_embeddings(self, block: Embeddings, sequence: int = 0, tap: Tap | None = None) -> Logits:
        """Decode a block of embeddings at its own positions of `sequence` and return the logits of every one of them.

        Returns:
            float32, (len(block), n_vocab).

        Raises:
            DecodeFailed: `llama_decode` did not return 0.
            ParamsInvalid: the block is not as wide, or has not as many axes of position, as the model takes; or the sequence
                would not fit into its cells; or a block that attends to itself as a whole is larger than a micro-batch.
        """
        facts, count = self.model.facts, len(block)
        # llama.cpp reads as many numbers as the model wants, whatever the arrays hold
        if block.vectors.shape != (count, facts.n_embd_inp) or block.positions.shape != (facts.position_axes, count):
            raise ParamsInvalid(
                f"embeddings of shape {block.vectors.shape} with positions of shape {block.positions.shape}; the model takes "
                f"(n, {facts.n_embd_inp}) and ({facts.position_axes}, n)"
            )
        if not block.causal and count > self.shape.micro_batch:
            raise ParamsInvalid(
                f"{count} embeddings that attend to one another do not fit into a micro-batch of {self.shape.micro_batch}"
            )
        vectors = block.vectors.astype(np.float32, copy=False)
        sequences = np.full(count, sequence, dtype=np.int32)
        if block.causal:
            return self._decode(vectors, block.positions, sequences, tap)
        self._llama.llama_set_causal_attn(self.handle, False)
        try:
            return self._decode(vectors, block.positions, sequences, tap)
        finally:
            self._llama.llama_set_causal_attn(self.handle, True)

    def decode_together(self, parts: Sequence[Part], tap: Tap | None = None) -> list[Logits]:
        """Decode parts of several sequences in one batch; the logits of each part.

        Raises:
            DecodeFailed: `llama_decode` did not return 0.
        """
        tokens = np.concatenate([part[0] for part in parts])
        positions = np.concatenate(
            [np.arange(position, position + len(part), dtype=np.int32) for part, position, _ in parts]
        )
        sequences = np.concatenate([np.full(len(part), sequence, dtype=np.int32) for part, _, sequence in parts])
        most = self.shape.outputs or len(tokens)
        ends = np.cumsum([min(len(part), most) for part, _, _ in parts])[:-1]
        return np.split(self._decode(tokens, positions, sequences, tap), ends)

    def _decode(self, given: Tokens | Vectors, positions: Tokens, sequences: Tokens, tap: Tap | None) -> Logits:
        count = len(given)
        if count and positions.max() >= self.shape.context:
            raise ParamsInvalid(
                f"position {positions.max()} does not fit into the {self.shape.context} cells of a sequence: "
                "give the lane fewer prompt tokens or decode steps"
            )
        # held here until llama_decode has returned: the fields of a ctypes structure keep no array alive
        embedded = given.dtype == np.float32
        inputs = np.ascontiguousarray(given, dtype=np.float32 if embedded else np.int32)
        positions = np.ascontiguousarray(positions, dtype=np.int32)
        n_sequence_ids, wanted = np.ones(count, dtype=np.int32), _last_of_each(sequences, self.shape.outputs)
        sequence_ids = (ctypes.POINTER(ctypes.c_int32) * count)(
            *(ctypes.pointer(ctypes.c_int32(int(sequence))) for sequence in sequences)
        )
        batch = self._llama.llama_batch(
            n_tokens=count,
            token=None if embedded else _pointer(inputs, ctypes.c_int32),
            embd=_pointer(inputs, ctypes.c_float) if embedded else None,
            pos=_pointer(positions, ctypes.c_int32),
            n_seq_id=_pointer(n_sequence_ids, ctypes.c_int32),
            seq_id=sequence_ids,
            logits=_pointer(wanted, ctypes.c_int8),
        )
        if tap and not self.shape.tapped:
            raise ParamsInvalid("nodes of this session cannot be looked at: its shape is not tapped")
        self._tap, self._failure = tap, None
        self._wanted = tap.wanted if tap else ()
        self._ordinal = 0
        self.sound = False
        status = self._llama.llama_decode(self.handle, batch)
        self._tap = None
        if self._failure is not None:
            raise self._failure
        if status != 0:
            raise DecodeFailed(
                f"llama_decode returned {status} for {count} {'embeddings' if embedded else 'tokens'} at position "
                f"{positions.flat[0]} of sequence {sequences[0]}"
            )
        self.sound = True
        logits = self._llama.llama_get_logits(self.handle)
        return np.ctypeslib.as_array(logits, (int(wanted.sum()), self.model.facts.n_vocab)).copy()

    @property
    def nodes_run(self) -> int:
        """Nodes of the last decode."""
        return self._ordinal

    def _on_node(self, pointer: int, ask: bool, _user_data: Any) -> bool:
        ordinal = self._ordinal
        if ask:
            self._ordinal = ordinal + 1
            if self._wanted is not None:
                return ordinal in self._wanted
        if self._tap is None or self._failure is not None:
            return False
        try:
            if ask:
                return self._tap.ask(ordinal, pointer)
            self._tap.done(ordinal - 1, pointer)
        except Exception as error:  # noqa: BLE001 - an exception cannot cross C code; `decode` raises it
            self._failure = error
            self._wanted = ()
            return False
        return True

    # -- state ------------------------------------------------------------------------------------------------------------

    def export_state(self, sequence: int, flags: int = 0) -> bytes:
        """The state of one sequence as bytes; `PARTIAL_STATE` gives its recurrent and sliding-window part.

        Raises:
            StateRefused: llama.cpp wrote another number of bytes than it announced.
        """
        size = self._llama.llama_state_seq_get_size_ext(self.handle, sequence, flags)
        buffer = (ctypes.c_uint8 * size)()
        written = self._llama.llama_state_seq_get_data_ext(self.handle, buffer, size, sequence, flags)
        if written != size:
            raise StateRefused(f"export of sequence {sequence} wrote {written} bytes of the {size} announced")
        return bytes(buffer)

    def import_state(self, state: bytes, sequence: int, flags: int = 0) -> None:
        """Restore an exported state into `sequence`.

        Raises:
            StateRefused: llama.cpp did not read all of it.
        """
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        read = self._llama.llama_state_seq_set_data_ext(self.handle, buffer, len(state), sequence, flags)
        if not state or read != len(state):
            raise StateRefused(f"import into sequence {sequence} read {read} of {len(state)} bytes")

    def clear(self) -> None:
        """Forget all sequences, and what their cells hold."""
        self._llama.llama_memory_clear(self._memory, True)

    def copy_sequence(self, source: int, target: int) -> None:
        """Let `target` share the cells of `source`: a resident cache hit."""
        self._llama.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def remove_sequence(self, sequence: int) -> None:
        """Forget `sequence`; cells that others share stay.

        Raises:
            StateRefused: llama.cpp says that it cannot.
        """
        if not self._llama.llama_memory_seq_rm(self._memory, sequence, -1, -1):
            raise StateRefused(f"sequence {sequence} could not be removed")

    def remove_tail(self, sequence: int, position: int) -> bool:
        """Forget `position` of `sequence` and all that follows; False if llama.cpp cannot, as with recurrent state."""
        return bool(self._llama.llama_memory_seq_rm(self._memory, sequence, position, -1))

    def last_position(self, sequence: int) -> int:
        """The highest position in memory for `sequence`; -1 when it is empty."""
        return int(self._llama.llama_memory_seq_pos_max(self._memory, sequence))

    def close(self) -> None:
        """Free the context."""
        if self.handle:
            self._llama.llama_free(self.handle)
            self.handle = None


def _last_of_each(sequences: Tokens, outputs: int) -> npt.NDArray[np.int8]:
    """One for the last `outputs` tokens of each sequence, else zero."""
    wanted = np.zeros(len(sequences), dtype=np.int8)
    for sequence in np.unique(sequences):
        wanted[np.flatnonzero(sequences == sequence)[-outputs:]] = 1
    return wanted


def _pointer(array: npt.NDArray[Any], kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))
