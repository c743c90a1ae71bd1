"""The workflows beside the canary under act, each in green and in red, on the libraries of the pin or of the binding."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.canary.night import Night
from tests.canary.product import BUILD_SCRIPT, PIN_FILE
from tests.workflows.acting import Run, Trigger, run_act
from tests.workflows.flatten import flatten_in
from tests.workflows.test_act import result

pytestmark = pytest.mark.slow

FRAME = "struct skippy_frame { unsigned int layer; unsigned long long bytes; };\n"
MIRROR = "#[repr(C)]\npub struct skippy_frame { pub layer: u32, pub bytes: u64 }\n"
CALLER = """\
name: caller
on: workflow_dispatch
permissions: {}
jobs:
  abi:
    permissions:
      contents: read
    uses: ./.github/workflows/static-abi-artifact.yml
    with:
      rust_files: frame.rs
      headers: frame.h
"""
GH = """\
#!/bin/sh
# stands in for GitHub's command, which needs GitHub: takes a token, keeps what it was told, demands the files
test -n "$GH_TOKEN" || exit 4
printf '%s\\n' "$@" >"$STUB_ARTIFACTS/gh"
cp notes.md "$STUB_ARTIFACTS/notes.md"
"""
Go = Callable[..., Run]


@pytest.fixture
def go(night: Callable[[str], Night], tmp_path: Path) -> Go:
    """Run a workflow of the product, whose pin is upstream's head and whose store has that build."""
    run = night("1")
    product = run.product

    def act(
        workflow: str,
        *,
        event: str = "workflow_dispatch",
        payload: dict[str, object] | None = None,
        files: dict[str, str] | None = None,
        flat: bool = False,
        **environment: str,
    ) -> Run:
        product.commit({PIN_FILE: f"{run.upstream.head}\n", **(files or {})})
        product.update()
        if flat:
            flatten_in(product.checkout, workflow)
        run.make_plan()
        run.build()
        variables = {
            "SKIPPY_UPSTREAM": "third_party/llama.cpp",
            "SKIPPY_BUILD_SCRIPT": BUILD_SCRIPT,
            "SKIPPY_SOURCES": run.source,
        }
        return run_act(
            product.checkout,
            tmp_path,
            Trigger(workflow=workflow, event=event, payload=payload or {}, variables=variables),
            PRODUCT_S3=run.s3,
            AWS_ACCESS_KEY_ID="key",
            AWS_SECRET_ACCESS_KEY="secret",
            AWS_EC2_METADATA_DISABLED="true",
            **environment,
        )

    return act


def test_nightly_stability_is_green(go: Go) -> None:
    """Five runs each agree on the libraries of the pin; the check that always reports is green."""
    done = go("nightly-stability.yml")
    assert done.code == 0, done.log[-6000:]
    assert (result(done, "determinism"), result(done, "nightly verdict")) == ("success", "success")
    lanes = {lane["lane"] for leg in done.verdict("nightly")["legs"] for lane in leg["lanes"]}  # type: ignore[attr-defined]
    assert lanes == {"inspect", "conversation", "determinism"}


def test_nightly_stability_is_red_where_runs_differ(go: Go) -> None:
    """A node that every third run computes differently makes the run red."""
    done = go("nightly-stability.yml", flat=True, STUB_FAULT="lfm2@cpu noisy-node determinism")
    assert done.code != 0
    verdict = done.verdict("nightly")
    assert (verdict["state"], verdict["causes"]) == ("red", ["leg_failed", "job_failed"])
    assert (result(done, "determinism"), result(done, "nightly verdict")) == (None, "failure")


def test_radix_cache_is_green(go: Go) -> None:
    """Twins on the binding: the gate of recurrent caches and the concurrent record are checks of their own."""
    done = go("skippy-radix-cache-benchmark.yml", payload={"inputs": {"subject": "twin"}})
    assert done.code == 0, done.log[-6000:]
    for name in ("kv-recurrent gate", "concurrent same-prompt record", "radix cache verdict"):
        assert result(done, name) == "success", name
    assert done.verdict("radix")["context"]["builds_checked"] is False  # type: ignore[index]


def test_radix_cache_is_red_where_state_is_dropped(go: Go) -> None:
    """A recurrent cache that loses state makes the run red."""
    done = go(
        "skippy-radix-cache-benchmark.yml",
        payload={"inputs": {"subject": "twin"}},
        flat=True,
        STUB_FAULT="lfm2@cpu recurrent-state-dropped cache-recurrent",
    )
    assert done.code != 0
    assert done.verdict("radix")["state"] == "red"
    checks = {
        name: result(done, name)
        for name in ("kv-recurrent gate", "concurrent same-prompt record", "radix cache verdict")
    }
    assert set(checks.values()) == {"failure"}, checks


@pytest.mark.parametrize("field", ["u64", "u32"])
def test_static_abi(go: Go, field: str) -> None:
    """The struct of the Rust side is compiled against the header; a field of another size is named and nothing is uploaded."""
    files = {
        "frame.rs": MIRROR.replace("u64", field),
        "frame.h": FRAME,
        ".github/workflows/caller.yml": CALLER,
    }
    done = go("caller.yml", files=files)
    uploaded = done.artifacts / "mesh-llm-static-abi.1" / "mesh-llm-static-abi.tar.gz"
    assert (done.code == 0) is (field == "u64"), done.log[-6000:]
    assert uploaded.is_file() is (field == "u64")
    if field == "u64":
        with tarfile.open(uploaded) as archive:
            names = {Path(name).name for name in archive.getnames()}
        assert "report.json" in names
        assert any(name.endswith(".c") for name in names)
    else:
        assert "skippy_frame" in done.log


def test_static_abi_by_hand(go: Go) -> None:
    """Without inputs the binding's structs are compared with those of the pin's headers, and the report is uploaded."""
    done = go("static-abi-artifact.yml")
    assert done.code == 0, done.log[-6000:]
    assert result(done, "static abi") == "success"
    assert (done.artifacts / "mesh-llm-static-abi.1" / "mesh-llm-static-abi.tar.gz.sha256").is_file()


@pytest.fixture
def tag(go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """Push the tag v0.1.0, with a stand-in for `gh`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gh").write_text(GH, encoding="utf-8")
    (tools / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")

    def push(changes: str, **environment: str) -> Run:
        files = {"README.md": "skippy\n", "LICENSE": "MIT\n", "CHANGELOG.md": f"# Changelog\n\n{changes}"}
        return go("release.yml", event="push", payload={"ref": "refs/tags/v0.1.0"}, files=files, **environment)

    return push


def test_release_publishes_what_was_certified(tag: Go) -> None:
    """Certified on the pin, built, attested; the notes hold the change log and the breaking change of the dropped family."""
    done = tag("## [0.1.0] - 2026-12-01\n\n- first\n")
    assert done.code == 0, done.log[-6000:]
    for name in ("package", "release verdict", "publish"):
        assert result(done, name) == "success", name
    told = (done.artifacts / "gh").read_text(encoding="utf-8").splitlines()
    assert told[:3] == ["release", "create", "v0.1.0"]
    assert "--verify-tag" in told
    assert sorted(Path(word).suffix for word in told if word.startswith("./")) == [".gz", ".whl"]
    notes = (done.artifacts / "notes.md").read_text(encoding="utf-8")
    assert "- first" in notes
    assert "`arcee`" in notes


def test_release_without_notes_publishes_nothing(tag: Go) -> None:
    """A tag without its entry in the change log: the required check is red, and no release is made."""
    done = tag("## [0.0.9]\n\n- old\n")
    assert done.code != 0
    assert (result(done, "package"), result(done, "release verdict")) == ("failure", "failure")
    assert result(done, "publish") is None
    assert not (done.artifacts / "gh").exists()
