"""`media-prefill` on real graphs: layouts of positions, a projector's image, and faults that must turn it red."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agent.engine import projector as projector_module
from agent.engine.embeddings import Embeddings
from agent.engine.library import load_library
from agent.engine.projector import Projector, load_mtmd
from agent.engine.session import Logits, Session, Shape, Tap
from agent.errors import EngineError, EngineUnavailable, ModelRefused, NoRecipe, WrongRole
from agent.faults.catalog import FAULTS
from agent.header.reader import read_header
from agent.header.role import Role, role_of
from agent.lanes import media_image
from agent.lanes.catalog import LANES
from agent.lanes.media import grid_positions, is_causal, random_block
from agent.lanes.result import LaneResult, Status
from agent.lanes.subject import Subject
from agent.twin.projector import has_projector, write_projector
from tests.agent.conftest import Subjects, changed

PARAMS = {
    "prefix_tokens": 12,
    "rows": 4,
    "columns": 6,
    "suffix_tokens": 9,
    "micro_batch": 16,
    "decode_steps": 2,
    "cuts": "classes",
}
# deepstack, plain M-RoPE, an axis for the number of the image, and a block that attends to itself as a whole
FAMILIES = ("qwen3vl", "qwen2vl", "hunyuan-vl", "gemma3-vl")


def run(subject: Subject, **params: int | str) -> LaneResult:
    """The lane, with short parameters."""
    return LANES["media-prefill"].run(subject, {**PARAMS, **params})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_and_an_image_are_split_exactly(subjects: Subjects, family: str) -> None:
    """Every comparison holds, over two micro-batches or one, and the image went through a projector."""
    result = run(subjects(family))
    assert result.status is Status.PASS, result.problems
    figures = result.measurements
    assert result.comparisons > 200
    assert figures["block_exact"] == len(figures["block_cuts"]) == figures["image_exact"] > 0
    assert figures["image_vectors"] >= 16
    assert len(figures["image_generated"]) == 3
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, "qwen3vlmoe", "gemma4", "gemma3n"])
def test_every_cut_of_every_multimodal_twin_is_exact(subjects: Subjects, family: str) -> None:
    """As a release asks for it."""
    subject = subjects(family)
    result = run(subject, cuts="all", decode_steps=8)
    assert result.status is Status.PASS, result.problems
    assert result.measurements["block_cuts"] == list(subject.contract.legal_cuts)


def test_a_model_without_a_projector_says_so(subjects: Subjects) -> None:
    """A block of vectors works with any decoder, recurrent ones too; what was not tested is a note."""
    result = run(subjects("lfm2"))
    assert result.status is Status.PASS, result.problems
    assert any("no twin of a projector for lfm2" in note for note in result.notes)
    assert "image_vectors" not in result.measurements


MEDIA_FAULTS = [name for name in FAULTS if name.startswith("media-")]


@pytest.mark.parametrize("fault", [*MEDIA_FAULTS, "boundary-tensor-forgotten", "import-does-nothing", "nan-logits"])
def test_a_fault_turns_it_red(subjects: Subjects, fault: str) -> None:
    """On a model that has them all to lose: deepstack, four axes, two micro-batches."""
    subject = subjects("qwen3vl")
    assert FAULTS[fault].applies(subject.contract)
    result = run(FAULTS[fault].seed(subject))
    assert result.status is Status.FAIL
    assert result.problems


def test_one_axis_of_position_cannot_be_permuted_unseen(subjects: Subjects) -> None:
    """llama.cpp refuses positions that decrease; the runner makes a fail of it."""
    with pytest.raises(EngineError):
        run(FAULTS["media-positions-permuted"].seed(subjects("gemma3-vl")))


class CausalStages(Subject):
    """Sessions forget that a block attends to itself as a whole."""

    def session(self, shape: Shape) -> Session:
        """A session that is always causal."""
        return _Causal(self.model, shape)


class _Causal(Session):
    def decode_embeddings(self, block: Embeddings, sequence: int = 0, tap: Tap | None = None) -> Logits:
        return super().decode_embeddings(dataclasses.replace(block, causal=True), sequence, tap)


def test_a_stage_that_reads_an_image_in_order_turns_it_red(subjects: Subjects) -> None:
    """Where the family asks for attention to the whole image, a stage with the usual mask says something else."""
    sound = subjects("gemma3-vl")
    faulty = CausalStages(sound.model, sound.header, sound.expectations, sound.threads)
    faulty.share(sound)
    result = run(faulty)
    assert result.status is Status.FAIL
    assert any("block, cut 1: first difference at position 12" in problem for problem in result.problems)


def test_a_block_that_changes_nothing_is_no_proof(subjects: Subjects, monkeypatch: pytest.MonkeyPatch) -> None:
    """If what follows does not depend on the vectors, equal bits say nothing."""

    def constant(*arguments: object) -> Embeddings:
        block = random_block(*arguments)  # type: ignore[arg-type]
        return dataclasses.replace(block, vectors=np.ones_like(block.vectors))

    monkeypatch.setattr("agent.lanes.media_prefill.random_block", constant)
    result = run(subjects("qwen2vl"))
    assert "the vectors of the block change nothing that follows them" in result.problems


def test_columns_that_the_header_does_not_predict_are_red(subjects: Subjects) -> None:
    """The header says how many layers add a part of the row; the graph must say the same at every cut."""
    sound = subjects("qwen3vl")
    header = sound.header
    lie = {**header.metadata, header.key("n_deepstack_layers"): 2}
    subject = Subject(sound.model, changed(header, metadata=lie), sound.expectations, 1)
    subject.share(sound)
    problems = run(subject).problems
    assert "2 deepstack layers of 64 do not make a row of 256" in problems
    assert any(problem.startswith("cut 2: of the embeddings ['inp_embd[192:256]'] crosses") for problem in problems)


def test_weights_whose_projector_is_missing_are_not_green(subjects: Subjects) -> None:
    """A row that names a projector owes an image, not only random vectors."""
    sound = subjects("qwen2vl")
    assert sound.expectations.family.projector is not None
    weights = changed(sound.expectations, random_weights=False)
    subject = Subject(sound.model, sound.header, weights, 1)
    subject.share(sound)
    result = run(subject)
    assert result.status is Status.FAIL
    assert result.problems == ("the row qwen2vl has a projector and the lane was given none",)


def test_weights_are_tested_with_the_projector_that_they_are_given(
    subjects: Subjects, twin: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the row is read and no twin is made; a file of another role is refused by name."""
    sound = subjects("qwen2vl")
    paths = (written(sound, tmp_path), twin("qwen2vl"))
    monkeypatch.setattr(media_image, "write_projector", None)
    right, wrong = (
        Subject(sound.model, sound.header, changed(sound.expectations, random_weights=False, projector=path), 1)
        for path in paths
    )
    right.share(sound)
    wrong.share(sound)
    result = run(right)
    assert result.status is Status.PASS, result.problems
    assert result.measurements["image_vectors"] == 24
    with pytest.raises(WrongRole, match="projector"):
        run(wrong)


# -- projectors ------------------------------------------------------------------------------------------------------------


def written(subject: Subject, folder: Path, *, width: int = 0) -> Path:
    """The twin of a projector for this model, or for one of another width."""
    facts, path = subject.model.facts, folder / "mmproj.gguf"
    factor = facts.n_embd_inp // facts.n_embd
    write_projector(path, facts.architecture, width or facts.n_embd, factor * (width or facts.n_embd))
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_are_laid_out_as_libmtmd_lays_them_out(subjects: Subjects, tmp_path: Path, family: str) -> None:
    """Positions, the span and the kind of attention are those that the library gives an image of the same size."""
    subject = subjects(family)
    facts = subject.model.facts
    pixels = np.random.default_rng(1).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    with Projector(written(subject, tmp_path), subject.model, max_tokens=24) as projector:
        assert projector.causal == is_causal(facts)
        before, image, _ = projector.read("Look: ", pixels, " Well?")
    assert isinstance(image, Embeddings)
    assert image.causal == is_causal(facts)
    rows, columns = (4, 4) if family == "gemma3-vl" else (4, 6)
    positions, span = grid_positions(facts, rows, columns, len(before))
    assert image.positions.tolist() == positions.tolist()
    assert image.span == span


def test_an_image_changes_what_its_projector_says(subjects: Subjects, tmp_path: Path) -> None:
    """Otherwise the vectors would be those of the twin's biases."""
    subject, rng = subjects("qwen3vl"), np.random.default_rng(1)
    with Projector(written(subject, tmp_path), subject.model, max_tokens=24) as projector:
        blocks = [
            next(
                part
                for part in projector.read("", rng.integers(0, 256, (32, 48, 3), dtype=np.uint8), "")
                if isinstance(part, Embeddings)
            )
            for _ in range(2)
        ]
    width = subject.model.facts.n_embd
    for start in range(0, 4 * width, width):
        one, other = (block.vectors[:, start : start + width] for block in blocks)
        assert np.abs(one - other).max() > 0.05
        assert np.abs(one[0] - one[1]).max() > 0.05


def test_the_twin_of_a_projector_is_told_from_a_model(subjects: Subjects, tmp_path: Path) -> None:
    """Its header has the role, so that nobody takes it for the language model."""
    assert role_of(read_header(written(subjects("qwen2vl"), tmp_path))) is Role.PROJECTOR


def test_the_same_projector_is_the_same_bytes(subjects: Subjects, tmp_path: Path) -> None:
    """As with all twins."""
    (tmp_path / "again").mkdir()
    first, second = (written(subjects("qwen3vl"), folder) for folder in (tmp_path, tmp_path / "again"))
    assert first.read_bytes() == second.read_bytes()


def test_a_projector_of_another_width_is_refused(subjects: Subjects, tmp_path: Path) -> None:
    """libmtmd compares the widths; its vectors are never cut or padded to fit."""
    subject = subjects("qwen2vl")
    with pytest.raises(ModelRefused, match=r"mmproj\.gguf"):
        Projector(written(subject, tmp_path, width=96), subject.model)


def test_a_language_model_is_no_projector(subjects: Subjects, twin: Callable[[str], Path]) -> None:
    """The two files of a family are mixed up more often than one thinks."""
    with pytest.raises(ModelRefused, match="libmtmd does not load"):
        Projector(twin("qwen2vl"), subjects("qwen2vl").model)


def test_a_build_without_libmtmd_is_infra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of another folder would say what another build makes of an image."""
    elsewhere = dataclasses.replace(load_library(), folder=tmp_path)
    monkeypatch.setattr(projector_module, "load_library", lambda: elsewhere)
    with pytest.raises(EngineUnavailable, match="holds no libmtmd"):
        load_mtmd.__wrapped__()


def test_a_struct_that_lies_elsewhere_is_found_before_a_file_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields that are read at the wrong place would be taken for parameters."""
    mtmd = load_mtmd()
    shifted = mtmd.mtmd_context_params_default()
    shifted.image_max_tokens = 0
    monkeypatch.setattr(mtmd, "mtmd_context_params_default", lambda: shifted)
    with pytest.raises(EngineUnavailable, match="do not lie as"):
        projector_module._check_layout(mtmd, Path("folder"))


def test_an_architecture_without_a_projector_is_named(tmp_path: Path) -> None:
    """And nothing is written."""
    assert not has_projector("qwen3")
    with pytest.raises(NoRecipe, match="qwen2vl"):
        write_projector(tmp_path / "mmproj.gguf", "qwen3", 64, 64)
    assert not list(tmp_path.iterdir())
