"""`backend-parity` without an accelerator: the CPU with other kernels stands in for one.

No GPU is at hand in the tests. The stand-in computes for real: a quantised twin whose weights are not repacked runs other kernels
than the same file on the CPU as llama.cpp loads it by default. Only its name and its place in the census are made up.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.engine.anatomy import Anatomy
from agent.engine.devices import choose_device
from agent.engine.library import load_library
from agent.engine.model import Model
from agent.faults.catalog import FAULTS
from agent.header.reader import read_model_header
from agent.lanes import backend_parity
from agent.lanes.catalog import LANES
from agent.lanes.result import LaneResult, Status
from agent.lanes.subject import Subject
from tests.agent.conftest import Subjects, changed

PARAMS = {"prompt_tokens": 20, "micro_batch": 16, "decode_steps": 4, "max_nmse": 0.01}
_Q4_0 = 2  # enum llama_ftype (llama.h)


def run(subject: Subject, **params: Any) -> LaneResult:
    """The lane, with short parameters."""
    return LANES["backend-parity"].run(subject, {**PARAMS, **params})


@pytest.fixture(scope="module")
def stand_in(subjects: Subjects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A quantised twin on a device that is called STANDIN0 and is the CPU without repacked weights."""
    sound, path = subjects("qwen3-dense"), tmp_path_factory.mktemp("quantised") / "twin.gguf"
    llama: Any = load_library().llama
    quantise = llama.llama_model_quantize_default_params()
    quantise.ftype = _Q4_0
    source = str(sound.model.path).encode()
    assert llama.llama_model_quantize(source, str(path).encode(), ctypes.byref(quantise)) == 0

    default = llama.llama_model_default_params

    def plain() -> Any:
        params = default()
        params.use_extra_bufts = False
        return params

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llama, "llama_model_default_params", plain)
        model = Model(path, choose_device("cpu"))
    model.device = replace(model.device, name="STANDIN0", kind="gpu")
    with Subject(model, read_model_header(path), sound.expectations, 1) as subject:
        yield subject


@pytest.fixture
def renamed(stand_in: Subject, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """The stand-in, whose nodes the census finds where its name says."""
    honest = backend_parity.nodes_of

    def nodes_of(anatomy: Anatomy) -> Mapping[str, int]:
        nodes = honest(anatomy)
        return {anatomy.model.device.name: nodes["CPU"]}

    monkeypatch.setattr(backend_parity, "nodes_of", nodes_of)
    return stand_in


def test_a_leg_on_the_cpu_has_nothing_to_compare(subjects: Subjects) -> None:
    """It is not a pass: the reason is the device."""
    result = run(subjects("qwen3-dense"))
    assert result.status is Status.NOT_APPLICABLE
    assert result.comparisons == 0
    assert result.problems == ("the leg's device is CPU, which is what an accelerator is compared with",)


def test_other_kernels_agree_within_the_bound(renamed: Subject) -> None:
    """Every position is compared, and what was measured is in the receipt."""
    result = run(renamed)
    assert result.status is Status.PASS, result.problems
    figures = result.measurements
    assert figures["positions"] == 24
    assert figures["nodes_by_device"].keys() == {"STANDIN0"}
    assert 0 <= figures["median_nmse"] <= figures["worst_nmse"] <= 0.01
    assert figures["tokens_equal"] >= 20
    json.dumps(result.to_json(), allow_nan=False)
    if figures["identical"] == figures["positions"]:
        pytest.skip("this processor has no kernels for repacked weights, so that both runs used the same ones")
    assert figures["nmse"] > 0
    # the same figures with a bound that they do not meet
    strict = run(renamed, max_nmse=figures["worst_nmse"] / 2)
    assert strict.status is Status.FAIL
    assert strict.problems[0].startswith("STANDIN0 against the CPU: the largest normalised mean squared error")


@pytest.mark.parametrize("fault", ["accelerator-scaled", "accelerator-noisy", "nan-logits"])
def test_a_device_that_is_wrong_turns_it_red(renamed: Subject, fault: str) -> None:
    """Too large by a quarter (every token is right), noisy, and no numbers at all."""
    result = run(FAULTS[fault].seed(renamed))
    assert result.status is Status.FAIL
    assert result.comparisons > 0
    if fault == "nan-logits":
        assert result.problems == ("logits at position 0 are not finite",)


def test_a_device_that_left_the_work_to_the_cpu_is_no_proof(stand_in: Subject) -> None:
    """The census of nodes decides, not the name that a model was loaded with."""
    result = run(stand_in)
    assert result.status is Status.FAIL
    assert result.problems[0].startswith("most nodes did not run on STANDIN0: ")
    assert result.problems[0].endswith(" on CPU")


def test_a_reference_that_used_the_device_is_no_reference(renamed: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runs on one device agree and say nothing."""
    monkeypatch.setattr(backend_parity, "nodes_of", lambda _anatomy: {"STANDIN0": 300})
    result = run(renamed)
    assert result.problems == ("the CPU's run used STANDIN0: 300 on STANDIN0",)


def test_work_that_was_done_elsewhere_is_noted(renamed: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that the device lacks falls back to the CPU: allowed, and said."""
    honest = backend_parity.nodes_of
    monkeypatch.setattr(
        backend_parity,
        "nodes_of",
        lambda anatomy: {**honest(anatomy), **({"CPU": 7} if anatomy.model.device.name == "STANDIN0" else {})},
    )
    result = run(renamed)
    assert result.status is Status.PASS, result.problems
    assert any(note.endswith("nodes some ran elsewhere: 7 on CPU") for note in result.notes)


def test_where_choices_can_tip_the_median_is_judged(renamed: Subject) -> None:
    """Experts and quantised real weights move single positions far with nothing wrong; a wrong kernel moves most."""
    weights = Subject(
        renamed.model, renamed.header, changed(renamed.expectations, random_weights=False), renamed.threads
    )
    weights.share(renamed)
    result = run(weights, max_nmse=0.0)
    if result.status is Status.PASS:
        pytest.skip("this processor has no kernels for repacked weights")
    assert "the median normalised mean squared error" in result.problems[0]


def test_the_file_is_loaded_a_second_time_on_the_cpu(stand_in: Subject) -> None:
    """And freed again."""
    with stand_in.load_on_cpu() as cpu:
        assert cpu.device.name == "CPU"
        assert cpu.path == stand_in.model.path
        assert isinstance(cpu.path, Path)
    assert cpu.handle is None
