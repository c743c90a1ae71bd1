"""Subjects whose stages treat a block of embeddings wrongly; tokens they treat right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from agent.engine.anatomy import Anatomy, Counts, Port
from agent.engine.embeddings import Embeddings
from agent.engine.session import Logits
from agent.engine.stage import Bytes, Frame, Stage
from agent.lanes.subject import Subject


class _FaultyStages(Subject):
    """Hands out stages of one faulty kind."""

    kind: ClassVar[type[Stage]]

    def stage(self, anatomy: Anatomy, start: int, end: int) -> Stage:
        """A faulty stage."""
        return self.kind(anatomy, self.session(anatomy.shape), start, end)


class _PermutedStage(Stage):
    def embedding_input(self, block: Embeddings, frame: Mapping[Port, Bytes]) -> Embeddings:
        block = super().embedding_input(block, frame)
        positions = block.positions.copy()
        if self.start == 0:
            return block
        if len(positions) > 1:
            positions[[1, 2]] = positions[[2, 1]]
        else:
            positions[:, [0, 1]] = positions[:, [1, 0]]
        return replace(block, positions=positions)


class PermutedPositions(_FaultyStages):
    """Stages after a cut take rows for columns; where there is one axis only, the first two vectors change places."""

    kind = _PermutedStage


class _DroppingStage(Stage):
    def embedding_frame(self, count: int, arriving: Frame | None) -> dict[Port, Bytes]:
        frame = super().embedding_frame(count, arriving)
        lost = next((port for port in frame if port.columns), None)
        return {port: np.zeros_like(data) if port is lost else data for port, data in frame.items()}


class DroppedDeepstack(_FaultyStages):
    """One deepstack layer after a cut gets nothing of the embeddings."""

    kind = _DroppingStage


class _ShiftedStage(Stage):
    def embedding_input(self, block: Embeddings, frame: Mapping[Port, Bytes]) -> Embeddings:
        block = super().embedding_input(block, frame)
        return block if self.start else replace(block, vectors=np.roll(block.vectors, 1, axis=0))


class ShiftedEmbeddings(_FaultyStages):
    """The first stage is given the vectors one row too far."""

    kind = _ShiftedStage


class _UnfedStage(Stage):
    def decode_embeddings(
        self, block: Embeddings, sequence: int, arriving: Frame | None = None, leaving: Sequence[int] = ()
    ) -> tuple[Logits, dict[int, Frame]]:
        if leaving or self.start == 0:
            return super().decode_embeddings(block, sequence, arriving, leaving)
        # the truth instead of garbage, and nothing of what the wire brought
        return self.session.decode_embeddings(block, sequence), {}

    def writes(self, counts: Counts, arriving: Frame | None) -> dict[Port, Bytes]:
        del counts, arriving
        return {}


class UnfedStages(_FaultyStages):
    """The last stage is not fed: what it says of the block it has worked out from the block itself."""

    kind = _UnfedStage
