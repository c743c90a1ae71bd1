"""The checks of the two command line programs, against stand-ins that fail in every way that the product may."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from agent.lanes.result import LaneResult
from agent.prebuilt import runs
from agent.prebuilt.handoff import handoffs_of, payload_of
from agent.prebuilt.ports import free_ports
from agent.prebuilt.processes import Ended, Program, run_program
from tests.agent.prebuilt.conftest import Lab, set_bytes

Fault = Callable[[str], None]


def told(result: LaneResult) -> tuple[str, str]:
    """Status and first problem."""
    return str(result.status), result.problems[0] if result.problems else ""


@pytest.mark.parametrize(
    ("name", "comparisons"), [("single-step", 1), ("chain", 1), ("split-scan", 2), ("dtype-matrix", 3)]
)
def test_a_check_passes(name: str, comparisons: int, lab: Lab) -> None:
    """With sound stand-ins: one token a split, and report and logs of every stage are kept."""
    result = lab.run(name)
    assert told(result) == ("pass", "")
    assert result.comparisons == comparisons
    kept = lab.folder / f"prebuilt-{name}"
    report = json.loads((kept / "report.json").read_text(encoding="utf-8"))
    assert report["mode"] == name
    assert list(kept.glob("stage-*.log"))


@pytest.mark.parametrize("name", ["single-step", "chain", "split-scan", "dtype-matrix"])
def test_an_error_in_a_stage_is_a_fail(name: str, lab: Lab, fault: Fault) -> None:
    """A report with a mismatch and exit code 1 is about the model."""
    fault("mismatch")
    status, problem = told(lab.run(name))
    assert status == "fail"
    assert "the split model says token" in problem


def test_one_token_does_not_show_a_late_error(lab: Lab, fault: Fault) -> None:
    """The product's own check is blind to what goes wrong later: this is why there is the check `tokens`."""
    fault("late-error")
    assert told(lab.run("single-step")) == ("pass", "")


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("no-report", "infra", "left no report and ended with exit code 1: Error: failed to open model"),
        ("silent-0", "infra", "left no report and ended with exit code 0"),
        ("half-report", "infra", "its report is no JSON"),
        ("other-form", "infra", "is not a single-step report as the adapter knows it"),
        ("pass-but-1", "infra", "its report says pass and it ended with exit code 1 instead of 0"),
        ("usage", "infra", "did not accept its arguments"),
        ("die", "fail", "it died (SIGSEGV)"),
        ("die-killed", "infra", "it was killed by the system"),
        ("die-after-report", "fail", "it died (SIGABRT)"),
        ("stage-crash", "fail", "a stage server died (SIGSEGV): GGML_ASSERT(n_nodes < max) failed"),
        ("stage-oom", "infra", "a stage server was killed by the system (SIGKILL)"),
        ("stage-exit", "infra", "a stage server ended before it served (exit code 1): Error: no KV cache layers"),
        ("leave-behind", "fail", "it left 1 processes behind"),
        ("wrong-cut", "fail", "the report's cut is 5, it should be 4"),
        ("no-token", "fail", "-1 is no token of this model"),
        ("liar", "fail", "the split model says token"),
    ],
)
def test_every_end_of_a_program_has_a_name(name: str, status: str, words: str, lab: Lab, fault: Fault) -> None:
    """What is about the model fails, what is about the machine is infra, and neither is ever green."""
    fault(name)
    found = told(lab.run("single-step"))
    assert found[0] == status
    assert words in found[1], found


def test_a_mismatch_that_ends_with_0_is_still_a_fail(lab: Lab, fault: Fault) -> None:
    """The exit code alone is never believed, and that it contradicts the report is told as well."""
    fault("fail-but-0")
    result = lab.run("single-step")
    assert result.status == "fail"
    assert "the split model says token" in result.problems[0]
    assert "its report says fail and it ended with exit code 0 instead of 1" in result.problems[1]


def test_a_program_that_hangs_is_stopped(lab: Lab, fault: Fault) -> None:
    """After its time it is stopped with its children, and the machine is to blame."""
    fault("hang")
    lab.seconds = 2
    started = time.monotonic()
    status, problem = told(lab.run("single-step"))
    assert (status, "hung: it wrote no report" in problem) == ("infra", True)
    assert time.monotonic() - started < 30


def test_a_program_that_hangs_after_its_report_is_no_pass(
    lab: Lab, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report alone does not count."""

    def run_until_report(
        argv: Sequence[str | Path], log: Path, environment: Mapping[str, str], seconds: float
    ) -> Ended:
        with Program(argv, log, environment) as program:
            deadline = time.monotonic() + seconds
            while not (log.parent / "report.json").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            return program.wait(0.2)

    fault("hang-after-report")
    monkeypatch.setattr(runs, "run_program", run_until_report)
    status, problem = told(lab.run("single-step"))
    assert (status, "wrote its report and did not end" in problem) == ("infra", True)


def test_a_stage_that_never_serves(lab: Lab, fault: Fault) -> None:
    """The program gives up by itself, with no report."""
    fault("stage-silent")
    lab.startup_seconds = 1
    status, problem = told(lab.run("single-step"))
    assert (status, "left no report" in problem) == ("infra", True)


@pytest.mark.parametrize("name", ["split-scan", "dtype-matrix"])
def test_a_report_with_no_results_is_no_pass(name: str, lab: Lab, fault: Fault) -> None:
    """Zero comparisons with exit code 0 are a fail."""
    fault("no-results")
    result = lab.run(name)
    assert (result.status, result.comparisons) == ("fail", 0)


def test_a_port_that_was_taken_away(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process on the port: other ports are tried, and where all are taken, the machine is to blame."""
    with socket.create_server(("127.0.0.1", 0)) as thief:
        port = thief.getsockname()[1]
        given = [(port,)]
        monkeypatch.setattr(runs, "free_ports", lambda count: given.pop(0) if given else free_ports(count))
        assert told(lab.run("single-step")) == ("pass", "")
        monkeypatch.setattr(runs, "free_ports", lambda _count: (port,))
        monkeypatch.setattr(runs, "_TRIES", 2)
        status, problem = told(lab.run("single-step"))
    assert status == "infra"
    assert f"another process took port {port}" in problem


def test_a_port_that_nobody_is_found_on(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in use when the stage wanted it, and nobody listens: the words of the system are enough for another try."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        given = [(port,)]
        monkeypatch.setattr(runs, "free_ports", lambda count: given.pop(0) if given else free_ports(count))
        assert told(lab.run("dtype-matrix")) == ("pass", "")
        monkeypatch.setattr(runs, "free_ports", lambda _count: (port,))
        status, problem = told(lab.run("single-step"))
    assert (status, "Address already in use" in problem) == ("infra", True)


@pytest.mark.parametrize(("times", "expected"), [(1, ("pass", "", 2)), (9, ("infra", "Connection reset by peer", 3))])
def test_a_stage_that_goes_late(
    times: int, expected: tuple[str, str, int], lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection to a stage that was on its way out says nothing about the model: another try, and the receipt counts them."""
    real, runs_made = run_program, []

    def run(argv: Sequence[str | Path], log: Path, environment: Mapping[str, str], seconds: float) -> Ended:
        runs_made.append(argv)
        if len(runs_made) > times:
            return real(argv, log, environment, seconds)
        words = "Error: read ready: Connection reset by peer (os error 104)"
        return Ended(code=1, timed_out=False, left=(), stuck=(), seconds=1, words=words)

    monkeypatch.setattr(runs, "run_program", run)
    result = lab.run("split-scan")
    status, problem = told(result)
    assert (status, expected[1] in problem, len(runs_made)) == (expected[0], True, expected[2])


def test_an_old_report_is_never_taken_for_a_new_one(lab: Lab, fault: Fault) -> None:
    """A green report of an earlier run lies where the new one would be."""
    assert lab.run("single-step").status == "pass"
    assert (lab.folder / "prebuilt-single-step" / "report.json").exists()
    fault("silent-0")
    assert lab.run("single-step").status == "infra"


def test_a_disk_that_takes_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system refuses on the way is the machine's, and no traceback."""

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "write_shim", refuse)
    status, problem = told(lab.run("single-step"))
    assert (status, "No space left on device" in problem) == ("infra", True)


def test_a_missing_server(lab: Lab) -> None:
    """The check that needs it is infra, by name."""
    (lab.bin_dir / "skippy-server").unlink()
    assert "skippy-server is neither in" in told(lab.run("single-step"))[1]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("", "infra"),
        ("load_tensors: offloaded 0/9 layers to GPU", "infra"),
        ("load_tensors: offloaded 9/9 layers to GPU", "pass"),
    ],
)
def test_a_pass_on_an_accelerator_needs_evidence(
    line: str, status: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No log that says that layers were put there: it may all have run on the CPU."""
    monkeypatch.setenv("STANDIN_GPU_LOG", line)
    lab.changes["backend"] = "cuda"
    assert lab.run("single-step").status == status


def test_payloads_follow_the_kinds_of_all_layers(lab: Lab) -> None:
    """Each range is asked for what its layers keep; a range that begins with attention and holds recurrent layers, too."""
    dense, recurrent, hybrid = (lab.target(name) for name in ("qwen3-dense", "mamba", "jamba"))
    assert payload_of(dense, 0, 8) == "resident-kv"
    assert payload_of(recurrent, 0, 8) == "recurrent-only"
    first = next(index for index, kind in enumerate(hybrid.contract.state) if kind.attention)
    assert payload_of(hybrid, first, first + 1) == "resident-kv"
    assert payload_of(hybrid, first, first + 3) == "kv-recurrent"
    assert [handoff.name for handoff in handoffs_of(dense)] == [
        "one-stage",
        "split-first",
        "split-middle",
        "split-final",
    ]


@pytest.mark.parametrize("family", ["qwen3-dense", "mamba"])
def test_state_handoff_passes(
    family: str, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twin: Callable[[str], Path]
) -> None:
    """Four topologies; the bytes that the stand-in computes by a formula of its own are those that the header predicts."""
    set_bytes(monkeypatch, tmp_path, twin(family))
    result = lab.run("state-handoff", family)
    assert told(result) == ("pass", "")
    assert set(result.measurements["bytes"]) == {"one-stage", "split-first", "split-middle", "split-final"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("other-restore", "after the restore"),
        ("other-hit", "a repeated hit answers otherwise"),
        ("wrong-suffix", "a suffix after the restore gives another token"),
        ("other-roundtrip", "has other bytes"),
        ("few-tokens", "1 tokens were restored, 24 were asked for"),
    ],
)
def test_a_handoff_that_goes_wrong(
    name: str, words: str, lab: Lab, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the comparisons can fail."""
    monkeypatch.setattr("agent.prebuilt.handoff.handoffs_of", lambda target: handoffs_of(target)[:1])
    fault(name)
    result = lab.run("state-handoff")
    assert result.status == "fail"
    assert any(words in problem for problem in result.problems), result.problems


def test_recurrent_state_that_is_not_handed_over(
    lab: Lab,
    fault: Fault,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    twin: Callable[[str], Path],
) -> None:
    """Every token is equal and the bytes say that nothing recurrent was there."""
    set_bytes(monkeypatch, tmp_path, twin("mamba"))
    monkeypatch.setattr("agent.prebuilt.handoff.handoffs_of", lambda target: handoffs_of(target)[:1])
    fault("drops-recurrent")
    result = lab.run("state-handoff", "mamba")
    assert any("0 recurrent bytes, the header predicts" in problem for problem in result.problems), result.problems


def test_a_topology_that_cannot_run_stops_the_others(lab: Lab, fault: Fault) -> None:
    """The first trouble is told with its topology; the rest would hang or die in the same way."""
    fault("die")
    result = lab.run("state-handoff")
    assert told(result)[1].startswith("one-stage: it died (SIGSEGV)")
    assert list(result.measurements["runs"]) == ["one-stage"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A layer package whose files hold a few bytes each."""
    home = tmp_path / "package"

    def write(name: str) -> dict[str, object]:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 10)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return {"path": name, "artifact_bytes": path.stat().st_size, "sha256": sha256}

    manifest = {
        "schema_version": 1,
        "model_id": "skippy-ci/model:local",
        "format": "layer-package",
        "layer_count": 8,
        "activation_width": 64,
        "shared": {name: write(f"shared/{name}.gguf") for name in ("metadata", "embeddings", "output")},
        "layers": [{"layer_index": layer, **write(f"layers/layer-{layer:03}.gguf")} for layer in range(8)],
    }
    (home / "model-package.json").write_text(json.dumps(manifest), encoding="utf-8")
    return home


def test_a_whole_package_passes(lab: Lab, package: Path) -> None:
    """Preflight and a split that is made of the package."""
    lab.changes["package"] = package
    result = lab.run("package")
    assert told(result) == ("pass", "")
    assert set(result.measurements["runs"]) == {"preflight", "single-step"}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "layers/layer-003.gguf"),
        (lambda path: os.truncate(path, 5), "layers/layer-003.gguf"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"), "layers/layer-003.gguf"),
    ],
)
def test_a_damaged_package_fails(damage: Callable[[Path], object], words: str, lab: Lab, package: Path) -> None:
    """A layer that is missing, cut short or changed by one byte; no stage is made of it then."""
    damage(package / "layers" / "layer-003.gguf")
    lab.changes["package"] = package
    result = lab.run("package")
    assert result.status == "fail"
    assert words in told(result)[1]
    assert list(result.measurements["runs"]) == ["preflight"]


@pytest.mark.parametrize("name", ["not-hashed", "hides-issues"])
def test_a_preflight_that_did_not_look(name: str, lab: Lab, package: Path, fault: Fault) -> None:
    """A digest that was not compared, or an issue that is counted and not shown, is no pass."""
    fault(name)
    if name == "hides-issues":
        (package / "shared" / "output.gguf").unlink()
    lab.changes["package"] = package
    assert lab.run("package").status == "fail"


def test_a_package_that_is_not_there(lab: Lab, tmp_path: Path) -> None:
    """Its manifest cannot be read: a named result, and no traceback."""
    lab.changes["package"] = tmp_path / "none"
    result = lab.run("package")
    assert "model-package.json cannot be read" in told(result)[1]
