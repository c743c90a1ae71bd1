"""An image and its prompt, through the row's projector or through the twin of one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agent.engine.embeddings import Embeddings
from agent.engine.projector import Pixels, Projector
from agent.header.reader import read_header
from agent.header.role import require_projector
from agent.lanes.media import Given
from agent.lanes.result import Findings
from agent.lanes.subject import Subject
from agent.twin.projector import has_projector, write_projector

_SEED = 20260509
_PIXELS = 8  # a side, for each vector of the image; a projector resizes as it needs


def read_image(subject: Subject, rows: int, columns: int, findings: Findings) -> tuple[Given, ...]:
    """What libmtmd makes of noise of about `rows` x `columns` vectors between two texts; empty where there is no projector.

    Raises:
        EngineUnavailable: the build under test has no libmtmd.
        WrongRole: the file of the row is no projector.
        ModelRefused: the projector is none for this model.
    """
    facts, row = subject.model.facts, subject.expectations.family
    noise = np.random.default_rng(_SEED).integers(0, 256, (rows * _PIXELS, columns * _PIXELS, 3), dtype=np.uint8)
    if not subject.expectations.random_weights:
        path = subject.expectations.projector
        if path is not None:
            require_projector(read_header(path))
            return _project(subject, path, noise, None, findings)
        findings.expect(row.projector is None, f"the row {row.family} has a projector and the lane was given none")
        reason = "the row has no projector"
    elif has_projector(facts.architecture):
        with tempfile.TemporaryDirectory(prefix="skippy-projector-") as folder:
            path = Path(folder) / "mmproj.gguf"
            write_projector(path, facts.architecture, facts.n_embd, facts.n_embd_inp)
            return _project(subject, path, noise, rows * columns, findings)
    else:
        reason = f"there is no twin of a projector for {facts.architecture}"
    findings.notes.append(f"{reason}: the block was of random vectors only")
    return ()


def _project(
    subject: Subject, path: Path, pixels: Pixels, max_tokens: int | None, findings: Findings
) -> tuple[Given, ...]:
    """Read the image twice: a projector that says other things of the same image would be taken for a wrong split."""
    with Projector(path, subject.model, subject.threads, max_tokens) as projector:
        first, second = (projector.read("An image: ", pixels, " What is it?") for _ in range(2))
    blocks, again = _blocks(first), _blocks(second)
    findings.expect(bool(blocks), "the projector made no embeddings of the image")
    findings.expect(
        [block.vectors.tobytes() for block in blocks] == [block.vectors.tobytes() for block in again],
        "the projector made other vectors of the same image",
    )
    findings.measurements["image_vectors"] = sum(map(len, blocks))
    return first


def _blocks(segments: Sequence[Given]) -> list[Embeddings]:
    return [given for given in segments if isinstance(given, Embeddings)]
