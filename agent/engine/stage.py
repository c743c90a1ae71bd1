"""One stage of a split: the layers [start, end) of a model, fed with what crossed the cut before it.

A stage runs the whole graph. What makes it a stage is what it is given: token ids that are wrong on purpose, and, at the
nodes of its frontier, the bytes that came over the wire. All that it computes below its first layer is therefore garbage, and
its logits can equal those of the whole model only if the wire carried everything that its own layers need.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from agent.engine.anatomy import Anatomy, Counts, Port
from agent.engine.embeddings import Embeddings
from agent.engine.library import GgmlTensor, load_library
from agent.engine.resource import Resource
from agent.engine.session import Logits, Part, Session, Tap, Tokens
from agent.errors import GraphChanged

Bytes = npt.NDArray[np.uint8]
_GARBAGE = 0.5  # what a stage has where the truth is kept from it
Frame = tuple[Bytes, ...]  # the data of the boundary tensors of one cut in one decode, in the order of `Anatomy.ports`


class BoundaryTap:
    """Writes what arrives and reads what leaves, at known nodes of one decode.

    What arrives is written when the `moment` of its port has come. A tensor that only passes through leaves as it came.
    """

    def __init__(self, read: Collection[Port], write: Mapping[Port, Bytes]) -> None:
        self._ggml = load_library().ggml
        self._read = {port.ordinal: port for port in read}
        self._write: dict[int, list[tuple[Port, Bytes]]] = {}
        for port, data in write.items():
            self._write.setdefault(port.moment, []).append((port, data))
        self._n_writes = len(write)
        self._early = {port.ordinal for port in write if port.moment != port.ordinal}
        self._pointers: dict[int, int] = {}  # of the early nodes, until their moment has come
        self.wanted: Container[int] | None = frozenset({*self._read, *self._write, *self._early})
        self.taken: dict[int, Bytes] = {}
        self.written = 0
        self.unchanged = 0

    def ask(self, ordinal: int, pointer: int) -> bool:
        """True for a port, wherever it is."""
        del pointer
        return self.wanted is not None and ordinal in self.wanted

    def done(self, ordinal: int, pointer: int) -> None:
        """Write first, then read."""
        if ordinal in self._early:
            self._pointers[ordinal] = pointer
        for port, data in self._write.get(ordinal, ()):
            self._fill(pointer if port.ordinal == ordinal else self._pointers[port.ordinal], port, data)
        if ordinal in self._read:
            port = self._read[ordinal]
            self._check(pointer, port)
            self.taken[ordinal] = self._get(pointer, port)

    def _fill(self, pointer: int, port: Port, data: Bytes) -> None:
        self._check(pointer, port)
        if data.nbytes != port.n_bytes:
            raise GraphChanged(f"{port.name} takes {port.n_bytes} bytes, {data.nbytes} arrived for it")
        if np.array_equal(self._get(pointer, port), data):
            self.unchanged += 1
        self._ggml.ggml_backend_tensor_set(pointer, data.ctypes.data_as(ctypes.c_void_p), 0, port.n_bytes)
        self.written += 1
        if port.ordinal in self.taken:
            self.taken[port.ordinal] = data

    def finish(self, n_run: int, n_traced: int) -> None:
        """Check that the decode met every node that was traced and every port."""
        if n_run != n_traced:
            raise GraphChanged(f"the decode ran {n_run} nodes, the trace {n_traced}")
        if self.written != self._n_writes or len(self.taken) != len(self._read):
            raise GraphChanged(
                f"{self.written} of {self._n_writes} boundary tensors written, {len(self.taken)} of {len(self._read)} read"
            )

    def _get(self, pointer: int, port: Port) -> Bytes:
        data = np.empty(port.n_bytes, dtype=np.uint8)
        self._ggml.ggml_backend_tensor_get(pointer, data.ctypes.data_as(ctypes.c_void_p), 0, port.n_bytes)
        return data

    def _check(self, pointer: int, port: Port) -> None:
        name = GgmlTensor.from_address(pointer).name.decode("utf-8", "replace")
        n_bytes = self._ggml.ggml_nbytes(pointer)
        if name != port.name or n_bytes != port.n_bytes:
            raise GraphChanged(
                f"node {port.ordinal} is {name} with {n_bytes} bytes; the trace had {port.name} with {port.n_bytes}"
            )


class Stage(Resource):
    """The layers [start, end) of a model on one machine, with a session of their own.

    Attributes:
        session: the context; its memory holds the state of the owned layers (and garbage below `start`).
        written: boundary tensors that were written so far.
        unchanged: how many of them already held those bytes. Where that is all of them, nothing has been proved.
    """

    def __init__(self, anatomy: Anatomy, session: Session, start: int, end: int) -> None:
        self.anatomy = anatomy
        self.session = session
        self.start = start
        self.end = end
        self.written = 0
        self.unchanged = 0

    def decode(
        self,
        tokens: Tokens,
        position: int,
        sequence: int,
        arriving: Frame | None = None,
        leaving: Sequence[int] = (),
    ) -> tuple[Logits, dict[int, Frame]]:
        """Decode one step.

        Args:
            tokens: the true token ids; a stage that must not know them feeds others.
            position: of the first token.
            sequence: id in this stage's memory.
            arriving: the frame of cut `start`; None for the first stage.
            leaving: cuts whose frames are wanted.

        Returns:
            Logits of every token (only those of the last stage mean anything), and the frames by cut.
        """

        def run(given: Sequence[Tokens], tap: Tap | None) -> list[Logits]:
            return [self.session.decode(given[0], position, sequence, tap)]

        logits, frames = self._decode((tokens,), run, arriving, leaving)
        return logits[0], frames

    def decode_together(
        self, parts: Sequence[Part], arriving: Frame | None = None, leaving: Sequence[int] = ()
    ) -> tuple[list[Logits], dict[int, Frame]]:
        """Decode parts of several sequences in one batch; as `decode`, with logits for each part."""

        def run(given: Sequence[Tokens], tap: Tap | None) -> list[Logits]:
            places = [(position, sequence) for _, position, sequence in parts]
            return self.session.decode_together(
                [(tokens, *place) for tokens, place in zip(given, places, strict=True)], tap
            )

        return self._decode([tokens for tokens, _, _ in parts], run, arriving, leaving)

    def _decode(
        self,
        tokens: Sequence[Tokens],
        run: Callable[[Sequence[Tokens], Tap | None], list[Logits]],
        arriving: Frame | None,
        leaving: Sequence[int],
    ) -> tuple[list[Logits], dict[int, Frame]]:
        counts = tuple(map(len, tokens))
        write = self.writes(counts, arriving)
        if self.start > 0 and not self.anatomy.contract.cut(self.start).tokens:
            tokens = [self._other_tokens(part) for part in tokens]
        wanted = {cut: self.anatomy.ports(cut, *counts) for cut in leaving}
        read = {port for ports in wanted.values() for port in ports}
        if not (write or read):
            return run(tokens, None), {}
        tap = BoundaryTap(read, write)
        logits = run(tokens, tap)
        self._finish(tap, self.anatomy, counts)
        return logits, {cut: tuple(tap.taken[port.ordinal] for port in ports) for cut, ports in wanted.items()}

    def decode_embeddings(
        self, block: Embeddings, sequence: int, arriving: Frame | None = None, leaving: Sequence[int] = ()
    ) -> tuple[Logits, dict[int, Frame]]:
        """Decode a block of embeddings as one step; the arguments and what is returned are as in `decode`.

        The first stage is given the block. A later one is given its positions and, of its vectors, only the columns that came
        over the wire; the rest is garbage.
        """
        anatomy, count = self.anatomy.of_embeddings, len(block)
        frame = self.embedding_frame(count, arriving)
        block = self.embedding_input(block, frame)
        wanted = {cut: anatomy.ports(cut, count) for cut in leaving}
        read = {port for ports in wanted.values() for port in ports if port.columns is None}
        tap = BoundaryTap(read, {port: data for port, data in frame.items() if port.columns is None})
        logits = self.session.decode_embeddings(block, sequence, tap)
        self._finish(tap, anatomy, (count,))
        return logits, {
            cut: tuple(_columns(block, port) if port.columns else tap.taken[port.ordinal] for port in ports)
            for cut, ports in wanted.items()
        }

    def embedding_frame(self, count: int, arriving: Frame | None) -> dict[Port, Bytes]:
        """What arrived for which port in a decode of `count` embeddings."""
        if self.start == 0:
            return {}
        if arriving is None:
            raise GraphChanged(f"stage [{self.start}, {self.end}) was given no frame")
        return dict(zip(self.anatomy.of_embeddings.ports(self.start, count), arriving, strict=True))

    def embedding_input(self, block: Embeddings, frame: Mapping[Port, Bytes]) -> Embeddings:
        """What the session is given: the block itself, or garbage of its size with what arrived put into its columns."""
        if self.start == 0:
            return block
        vectors = np.full_like(block.vectors, _GARBAGE)
        for port, data in frame.items():
            if port.columns:
                vectors[:, slice(*port.columns)] = data.view(np.float32).reshape(len(block), -1)
        return replace(block, vectors=vectors)

    def _finish(self, tap: BoundaryTap, anatomy: Anatomy, counts: Counts) -> None:
        tap.finish(self.session.nodes_run, anatomy.step(*counts).n_nodes)
        self.written += tap.written
        self.unchanged += tap.unchanged

    def writes(self, counts: Counts, arriving: Frame | None) -> dict[Port, Bytes]:
        """What is written where in a decode of so many tokens: the frame, and garbage over embeddings made of true tokens."""
        if self.start == 0:
            return {}
        if arriving is None:
            raise GraphChanged(f"stage [{self.start}, {self.end}) was given no frame")
        frame = dict(zip(self.anatomy.ports(self.start, *counts), arriving, strict=True))
        if not self.anatomy.contract.cut(self.start).tokens:
            return frame
        return {port: _garbage(port) for port in self.anatomy.embedding_ports(*counts)} | frame

    def _other_tokens(self, tokens: Tokens) -> Tokens:
        n_vocab = self.anatomy.model.facts.n_vocab
        return ((tokens + n_vocab // 2) % n_vocab).astype(np.int32)

    def close(self) -> None:
        """Free the session."""
        self.session.close()


def _garbage(port: Port) -> Bytes:
    if port.dtype == "f32":
        return np.full(port.n_bytes // 4, _GARBAGE, dtype=np.float32).view(np.uint8)
    return np.zeros(port.n_bytes, dtype=np.uint8)


def _columns(block: Embeddings, port: Port) -> Bytes:
    return np.ascontiguousarray(block.vectors[:, slice(*(port.columns or ()))]).reshape(-1).view(np.uint8)
