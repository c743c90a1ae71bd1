"""The command: exit codes, the receipt, what lies beside it, and how it says that nothing was proved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.digests import sha256_of_file
from agent.prebuilt import leg
from agent.prebuilt.adapter import Dialect
from agent.prebuilt.binaries import CORRECTNESS, NAMES, SERVER
from agent.prebuilt.checks import run_checks
from agent.prebuilt.leg import CHECKS_FILE
from agent.receipt.receipt import Receipt, read_receipt
from agent.receipt.statement import receipt_predicate
from matrixgen.canonical import digest_of
from tests.agent.conftest import Cli, Result
from tests.agent.prebuilt.conftest import Lab, write_standin

Fault = Callable[[str], None]
CUT = ("--cut", "4")


@pytest.fixture
def call(
    cli: Cli, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: Dialect
) -> Callable[..., Result]:
    """Test the stand-ins on the twin of qwen3-dense. They are asked for their flags once for all tests."""
    monkeypatch.setattr(leg, "probe", lambda _tools: dialect)

    def run(*arguments: str | Path, family: str = "qwen3-dense", binaries: tuple[str | Path, ...] = ()) -> Result:
        where = binaries or ("--bin-dir", lab.bin_dir)
        return cli("prebuilt", family, *where, "--receipts", tmp_path / "receipts", *arguments)

    return run


@pytest.fixture
def receipt(tmp_path: Path) -> Callable[[], Receipt]:
    """The receipt on the disk."""
    return lambda: read_receipt(tmp_path / "receipts" / "qwen3-dense@cpu" / "receipt.json")


def test_exit_code_0_and_the_receipt(
    call: Callable[..., Result], receipt: Callable[[], Receipt], lab: Lab, twin: Callable[[str], Path], tmp_path: Path
) -> None:
    """A pass names the bytes of model and binaries, the pin and the device; logs, report and the checks lie beside it."""
    done = call("--twin", "--check", "single-step", *CUT)
    assert done.code == 0, done.out + done.err
    assert "pass  prebuilt-single-step: 1 comparisons: cut at 4: the same token" in done.out
    found = receipt()
    assert (found.status, found.event, [lane.lane for lane in found.lanes]) == (
        "pass", "prebuilt", ["prebuilt-single-step"],
    )  # fmt: skip
    assert found.subject.files[0].sha256 == sha256_of_file(twin("qwen3-dense"))
    assert found.subject.recipe
    assert "holds no record of a build" in found.subject.does_not_prove
    assert found.engine["libraries"] == {name: sha256_of_file(lab.bin_dir / name) for name in NAMES}
    assert (found.engine["version"], found.engine["dialect"]) == ("unknown", "wire-dtypes")
    assert (found.device["backend"], found.pin["commit"]) == ("cpu", lab.manifest.pin.commit)
    home = tmp_path / "receipts" / "qwen3-dense@cpu"
    assert digest_of(json.loads((home / CHECKS_FILE).read_text(encoding="utf-8"))) == found.plan
    report = json.loads((home / "prebuilt-single-step" / "report.json").read_text(encoding="utf-8"))
    assert found.lanes[0].measurements["run"]["report"] == digest_of(report)
    assert receipt_predicate(found)["passedTests"] == ["qwen3-dense@cpu/prebuilt-single-step"]


def test_exit_code_1_where_the_model_is_wrong(
    call: Callable[..., Result], receipt: Callable[[], Receipt], fault: Fault
) -> None:
    """A mismatch: the problem in the output and in the receipt."""
    fault("mismatch")
    done = call("--twin", "--check", "single-step", *CUT)
    assert done.code == 1
    assert "fail  prebuilt-single-step" in done.out
    assert receipt().status == "fail"


def test_exit_code_4_where_the_machine_is_to_blame(
    call: Callable[..., Result], receipt: Callable[[], Receipt], fault: Fault
) -> None:
    """No report: nothing is known about the model."""
    fault("no-report")
    assert call("--twin", "--check", "single-step", *CUT).code == 4
    assert receipt().status == "infra"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--check", "single-step"), "say what to test"),
        (("--twin", "--model", "m.gguf"), "not both"),
        (("--twin", "--check", "speed"), "there is no check 'speed'; there are single-step, chain"),
        (("--twin", "--check", "package"), "needs a layer package"),
        (("--twin", "--check", "chain", "--cut", "4", "--cut", "4"), "three stages need two cuts"),
        (("--twin", "--bin-dir", ".", "--build", "b.tar"), "say which binaries to test"),
    ],
)
def test_exit_code_2_for_options_that_do_not_fit(
    arguments: tuple[str, ...], words: str, call: Callable[..., Result], tmp_path: Path
) -> None:
    """Nothing is run and no receipt is written."""
    done = call(*arguments)
    assert done.code == 2
    assert words in done.err
    assert not (tmp_path / "receipts").exists()


def test_exit_code_2_for_an_unknown_family(call: Callable[..., Result]) -> None:
    """The nearest name is told."""
    assert "unknown family 'qwen3-dens'" in call("--twin", family="qwen3-dens").err


def test_a_cut_that_the_model_does_not_have(call: Callable[..., Result], receipt: Callable[[], Receipt]) -> None:
    """Bad input; the receipt that was begun stays red."""
    done = call("--twin", "--check", "single-step", "--cut", "8")
    assert done.code == 2
    assert "--cut 8" in done.err
    assert "so a cut is 1 to 7" in done.err
    assert receipt().status == "infra"


def test_cuts_are_derived_where_none_is_given(call: Callable[..., Result]) -> None:
    """llama.cpp is asked where the model may be cut."""
    done = call("--twin", "--check", "split-scan")
    assert done.code == 0, done.out
    assert "of 7 legal cuts" in done.out


def test_a_file_of_another_family(
    call: Callable[..., Result], receipt: Callable[[], Receipt], twin: Callable[[str], Path]
) -> None:
    """The architecture of the file is not that of the row: a fail before any binary runs."""
    assert call("--model", twin("mamba"), "--check", "single-step", *CUT).code == 1
    assert "of architecture 'mamba'" in receipt().lanes[0].summary


def test_no_binaries(call: Callable[..., Result], receipt: Callable[[], Receipt], tmp_path: Path) -> None:
    """An empty folder: every owed lane is infra, and the receipt names nothing that was tested."""
    done = call("--twin", *CUT, binaries=("--bin-dir", tmp_path / "empty"))
    assert done.code == 4
    found = receipt()
    assert {str(lane.status) for lane in found.lanes} == {"infra"}
    assert len(found.lanes) == 5
    assert (found.engine, found.subject.proves) == ({}, "nothing")


@pytest.mark.parametrize("name", [CORRECTNESS, SERVER])
def test_a_binary_that_is_missing_is_not_left_out(
    name: str, call: Callable[..., Result], receipt: Callable[[], Receipt], lab: Lab
) -> None:
    """The checks that need it are owed all the same, and are infra by name."""
    (lab.bin_dir / name).unlink()
    assert call("--twin", "--check", "single-step", "--check", "tokens", *CUT).code == 4
    lanes = {lane.lane: lane for lane in receipt().lanes}
    assert lanes["prebuilt-single-step"].status == "infra"
    assert f"{name} is neither in" in lanes["prebuilt-single-step"].summary
    assert lanes["prebuilt-tokens"].status == ("infra" if name == SERVER else "pass")


def test_a_binary_that_is_replaced_meanwhile(
    call: Callable[..., Result], receipt: Callable[[], Receipt], lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass is taken back when nobody knows which binary gave it."""

    def replace_at_the_end(*arguments: Any) -> Any:
        yield from run_checks(*arguments)
        with (lab.bin_dir / "skippy-server").open("a", encoding="utf-8") as file:
            file.write("# another\n")

    monkeypatch.setattr(leg, "run_checks", replace_at_the_end)
    assert call("--twin", "--check", "single-step", *CUT).code == 4
    assert "is not the file any more" in receipt().lanes[0].summary


def test_a_run_that_is_interrupted_leaves_a_red_receipt(
    call: Callable[..., Result], receipt: Callable[[], Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything runs, a receipt with all lanes unfinished is on the disk."""

    def interrupt(*_: object) -> None:
        assert [(str(lane.status), lane.summary) for lane in receipt().lanes] == [
            ("infra", "the leg did not run to its end")
        ]
        raise RuntimeError("stop here")

    monkeypatch.setattr(leg, "_prepare", interrupt)
    assert call("--twin", "--check", "single-step", *CUT).code == 70
    assert receipt().status == "infra"


def test_json_is_the_receipt_and_nothing_else(call: Callable[..., Result], receipt: Callable[[], Receipt]) -> None:
    """Standard output is one JSON object."""
    done = call("--twin", "--check", "single-step", *CUT, "--json")
    assert json.loads(done.out)["digest"] == receipt().to_json()["digest"]


def test_a_check_that_a_release_does_not_have(
    cli: Cli, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: Callable[[], Receipt]
) -> None:
    """Asked for by name it is infra; among all it is left out with a note, and the others count."""
    monkeypatch.setenv("STANDIN_RELEASE", "raw-f32")
    common = ("prebuilt", "qwen3-dense", "--twin", "--bin-dir", lab.bin_dir, "--receipts", tmp_path / "receipts", *CUT)
    done = cli(*common, "--check", "dtype-matrix", "--check", "single-step")
    assert done.code == 4
    assert "has no command 'dtype-matrix'" in done.out
    assert [str(lane.status) for lane in receipt().lanes] == ["pass", "infra"]


@pytest.mark.slow
def test_all_checks_of_a_later_release(
    cli: Cli, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: Callable[[], Receipt]
) -> None:
    """Without a name, what the binaries do not have is a note and not owed; everything else runs, on raw f32."""
    monkeypatch.setenv("STANDIN_RELEASE", "raw-f32")
    done = cli("prebuilt", "qwen3-dense", "--twin", "--bin-dir", lab.bin_dir, "--receipts", tmp_path / "receipts", *CUT)
    assert (
        "note: dtype-matrix is left out: releases like this one have no `skippy-correctness dtype-matrix`" in done.err
    )
    assert "note: chain is left out: three stages need two cuts" in done.err
    assert {lane.lane: str(lane.status) for lane in receipt().lanes} == {
        "prebuilt-single-step": "pass",
        "prebuilt-split-scan": "pass",
        "prebuilt-state-handoff": "pass",
        "prebuilt-tokens": "pass",
    }
    assert done.code == 0


def test_a_build_is_verified_first(
    call: Callable[..., Result], receipt: Callable[[], Receipt], tmp_path: Path, build_with_binaries: Path
) -> None:
    """From a build's archive the receipt knows the llama.cpp; a changed byte and nothing of it is run."""
    done = call("--twin", "--check", "single-step", *CUT, binaries=("--build", build_with_binaries))
    assert done.code == 0, done.out + done.err
    found = receipt()
    assert (found.engine["version"], found.build_key) == ("c" * 40, "build-x")
    assert f"note: the build is of llama.cpp {'c' * 40}" in done.err
    assert "holds no record" not in found.subject.does_not_prove
    with build_with_binaries.open("r+b") as file:
        data = file.read()
        file.seek(data.index(b"exec"))
        file.write(b"EXEC")
    shutil.rmtree(tmp_path / "receipts")
    done = call("--twin", "--check", "single-step", *CUT, binaries=("--build", build_with_binaries))
    assert done.code == 2
    assert not (tmp_path / "receipts").exists()


@pytest.fixture
def build_with_binaries(tmp_path: Path) -> Path:
    """A build's archive that holds the stand-ins in bin/."""
    from agent.build.archive import members_of, pack
    from agent.build.record import BuildRecord
    from agent.build.system import system_of_build
    from tests.agent.prebuilt.conftest import STANDINS

    folder = tmp_path / "build"
    for name in STANDINS:
        write_standin(folder / "bin", name)
    record = BuildRecord.from_json(
        {
            "schema_version": 1,
            "key": "build-x",
            "commit": "c" * 40,
            "patches": [],
            "patch_digest": "",
            "backend": "cpu",
            "system": system_of_build([]),
            "toolchain": {},
            "flags": [],
            "needed": {},
            "members": [member.to_json() for member in members_of(folder)],
            "layout": {"source": "none", "machine": "none", "structs": {}},
        },
        "build",
    )
    pack(folder, record, tmp_path / "build.tar")
    return tmp_path / "build.tar"
