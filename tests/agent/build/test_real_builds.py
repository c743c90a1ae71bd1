"""Whole builds of llama.cpp: the binding's own pin, the release before it, and libraries of other releases made elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agent.build.archive import unpack
from agent.build.ticket import BuildTicket
from matrixgen.leg import Plan
from tests.agent.build.kit import skippy
from tests.agent.build.real import B10361, OLDER, V0_4_0, V0_5_0, NodePackage, certify, pinned_binding, plan_of, sources
from tests.canary.builder import JOBS, Shared
from tests.canary.conftest import shared

__all__ = ["shared"]  # a fixture

FAMILIES = ["jamba", "qwen3-dense", "rwkv7"]
LEGS = [f"{family}@cpu" for family in FAMILIES]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (os.environ.get("CI") or (shutil.which("cmake") and shutil.which("npm"))), reason="no cmake or npm"
    ),
]


def shelve(shared: Shared, plan: Plan, plan_file: Path, checkout: Path, shelf: Path, *, keep_objects: bool) -> Path:
    """The archive of the plan's build with its ticket in `shelf`; compiled once, whichever test or session comes first."""
    build = plan.builds[0]

    def make(archive: Path, work: Path) -> None:
        options = ("--work", work) if keep_objects else ()
        arguments = ("--plan", plan_file, "--key", build.key, "--llama-src", checkout, "--jobs", JOBS, *options)
        ran = skippy("build", *arguments, "-o", archive)
        assert ran.code == 0, ran.err

    shelf.mkdir()
    archive = shelf / "llama.tar"
    shutil.copy(shared.build(build.artifact, make), archive)
    BuildTicket.of(archive, build.key).write(shelf)
    return archive


def test_the_pin_of_the_binding(shared: Shared, tmp_path: Path) -> None:
    """Built from its sources, it equals the binding struct by struct, and twins pass on exactly those libraries."""
    checkout = sources(pinned_binding(), tmp_path / "sdist")
    plan_file = tmp_path / "plan.json"
    plan = plan_of(checkout, FAMILIES, plan_file)
    archive = shelve(shared, plan, plan_file, checkout, tmp_path / "shelf", keep_objects=True)
    ran = skippy("abi", "--llama-src", checkout, "--build", archive, "--json")
    assert (ran.code, ran.json["measurements"]["followed"]) == (0, []), ran.out
    ran = certify(plan_file, tmp_path / "shelf", tmp_path / "receipts", *LEGS)
    assert ran.code == 0, ran.err
    record = unpack(archive, tmp_path / "unpacked")
    digests = {member.path: member.sha256 for member in record.members}
    for receipt in ran.json:
        engine = receipt["engine"]
        assert (receipt["status"], receipt["build_key"], engine["followed_structs"]) == ("pass", plan.builds[0].key, [])
        assert (engine["build"]["key"], engine["build"]["commit"]) == (plan.builds[0].key, plan.pin.commit)
        # a link has no digest of its own: its file is listed under the version
        listed = {
            name: digests[f"lib/{(tmp_path / 'unpacked/lib' / name).resolve().name}"] for name in engine["libraries"]
        }
        assert engine["libraries"] == listed
        assert {"libllama.so", "libggml-cpu.so"} <= listed.keys()


def test_a_pin_whose_structs_moved(shared: Shared, tmp_path: Path) -> None:
    """The release before: a struct lies elsewhere and functions are missing; it is followed, and the receipt says so."""
    checkout = sources(OLDER, tmp_path / "sdist")
    plan_file = tmp_path / "plan.json"
    plan = plan_of(checkout, FAMILIES, plan_file)
    archive = shelve(shared, plan, plan_file, checkout, tmp_path / "shelf", keep_objects=False)
    ran = skippy("abi", "--build", archive, "--json")
    assert ran.code == 0, ran.out
    assert ran.json["measurements"]["followed"] == ["llama_model_params"]
    assert "llama_batch_ext_init" in ran.json["measurements"]["missing_functions"]
    assert {"AB004", "AB008", "AB009"} <= {finding["id"] for finding in ran.json["findings"]}
    ran = certify(plan_file, tmp_path / "shelf", tmp_path / "receipts", *LEGS)
    assert ran.code == 0, ran.err
    assert "llama_model_params: not as the binding has it" in ran.err
    for receipt in ran.json:
        assert (receipt["status"], receipt["build_key"]) == ("pass", plan.builds[0].key)
        assert receipt["engine"]["build"]["commit"] == plan.pin.commit
        assert receipt["engine"]["followed_structs"] == ["llama_model_params"]

    # the same libraries without their record: nothing says how the structs lie, so no model is opened
    folder = tmp_path / "build"
    unpack(archive, folder)
    (folder / "build.json").unlink()
    ran = skippy("certify", "qwen3-dense", "--twin", "--build", folder, "--receipts", tmp_path / "others")
    assert (ran.code, (tmp_path / "others").exists()) == (2, False)
    ran = skippy("abi", "--build", folder / "lib", "--json")
    assert (ran.code, [finding["id"] for finding in ran.json["findings"]]) == (1, ["AB014"])


@pytest.mark.parametrize("package", [B10361, V0_4_0, V0_5_0], ids=["b10361", "v0.4.0", "v0.5.0"])
def test_libraries_of_another_pin_without_a_record(
    package: NodePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They load and answer, and are refused by name: in `abi`, as a build, and where the variable names their folder."""
    libraries = package.unpack(tmp_path)
    ran = skippy("abi", "--build", libraries, "--json")
    assert (ran.code, [finding["id"] for finding in ran.json["findings"]]) == (1, ["AB014"])
    command = ("certify", "qwen3-dense", "--twin", "--receipts", tmp_path / "receipts")
    ran = skippy(*command, "--build", libraries)
    assert (ran.code, "holds no build.json" in ran.err, (tmp_path / "receipts").exists()) == (2, True, False)
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(libraries))
    ran = skippy("devices")
    assert (ran.code, "of another pin than the binding" in ran.err) == (4, True)


def test_libraries_of_another_pin_with_headers(tmp_path: Path) -> None:
    """b10361 with the headers of a near release: its moved struct is followed and every default comes back right.

    The headers are not quite those of the libraries, which is found by a function; with the binding's headers, whose struct
    is another, the defaults come back wrong.
    """
    libraries = B10361.unpack(tmp_path)
    for requirement, known, followed in (
        (OLDER, {"AB015"}, ["llama_model_params"]),
        (pinned_binding(), {"AB010", "AB015"}, []),
    ):
        checkout = sources(requirement, tmp_path / requirement.split()[0].partition("==")[2])
        ran = skippy("abi", "--build", libraries, "--llama-src", checkout, "--json")
        errors = {finding["id"] for finding in ran.json["findings"] if finding["severity"] == "error"}
        assert (ran.code, errors, ran.json["measurements"]["followed"]) == (1, known, followed)
