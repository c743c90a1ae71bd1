"""`skippy-agent build` with real cmake on a small checkout, and builds put under test by `certify --build`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from agent.build.archive import unpack, verify_folder
from agent.build.build import BuildRequest, build
from agent.build.headers import layout_of_checkout
from agent.build.make import Recipe
from agent.build.patches.queue import read_queue
from agent.build.record import BuildRecord
from agent.build.sources import copy_checkout
from agent.errors import BuildFailed
from matrixgen.manifest import load_manifest
from matrixgen.plan import build_plan, write_plan
from tests.agent.build.kit import LLAMA_H, pack_installed, skippy, write_checkout

pytestmark = pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("git")), reason="no cmake or git")

PATCH = """\
--- a/src/cpu.c
+++ b/src/cpu.c
@@ -1 +1 @@
-int ggml_cpu_init(int device) { return device; }
+int ggml_cpu_init(int device) { return device + 1; }
"""


def request(checkout: Path | None, output: Path, **changes: object) -> BuildRequest:
    """A build for the CPU."""
    fields: dict[str, object] = {
        "checkout": checkout,
        "commit": None,
        "queue": (),
        "recipe": Recipe(backend="cpu"),
        "key": "",
        "output": output,
        **changes,
    }
    return BuildRequest(**fields)  # type: ignore[arg-type]


def make(checkout: Path | None, output: Path, **changes: object) -> BuildRecord:
    """Build in silence."""
    return build(request(checkout, output, **changes), lambda _line: None)


def patches(tmp_path: Path, text: str = PATCH) -> Path:
    """A queue of one patch."""
    folder = tmp_path / "patches"
    folder.mkdir(exist_ok=True)
    (folder / "0001-a.patch").write_text(text, encoding="utf-8")
    return folder


def git(checkout: Path) -> str:
    """Make the checkout a repository of one commit; its name."""
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "commit", "-q", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_two_builds_elsewhere_are_the_same_bytes(tmp_path: Path, checkout: Path) -> None:
    """Another path, other compiler flags in the environment: same archive; no path of this machine is in it."""
    make(checkout, tmp_path / "a.tar")
    other = write_checkout(tmp_path / "somewhere" / "else")
    os.environ["CFLAGS"] = "-O0 -g"
    try:
        make(other, tmp_path / "b.tar")
    finally:
        del os.environ["CFLAGS"]
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert str(tmp_path).encode() not in (tmp_path / "a.tar").read_bytes()


def test_record_says_what_the_build_is(tmp_path: Path, checkout: Path) -> None:
    """Commit, patches, layout, tools, needs and members are recorded; links and modes are kept."""
    commit = git(checkout)
    queue = read_queue(patches(tmp_path))
    record = make(checkout, tmp_path / "a.tar", queue=queue)
    assert unpack(tmp_path / "a.tar", tmp_path / "out") == record
    assert (record.commit, record.patches) == (commit, ((queue[0].name, queue[0].sha256),))
    assert record.layout.structs == layout_of_checkout(checkout).structs
    assert {"cc", "cmake"} <= record.toolchain.keys()
    links = {member.path: member.link for member in record.members if member.link}
    assert links["lib/libllama.so"] == "libllama.so.0"
    assert all("libggml-cpu" not in name for names in record.needed.values() for name in names)


def test_a_patch_changes_the_build_and_not_the_checkout(tmp_path: Path, checkout: Path) -> None:
    """The queue is applied to a copy; the checkout that was given stays as it is."""
    plain = make(checkout, tmp_path / "a.tar")
    patched = make(checkout, tmp_path / "b.tar", queue=read_queue(patches(tmp_path)))
    assert plain.members != patched.members
    assert "device + 1" not in (checkout / "src/cpu.c").read_text(encoding="utf-8")
    assert not (checkout / "build").exists()


@pytest.mark.parametrize("fault", ["conflict", "compile", "cmake", "no library", "dirty", "other commit"])
def test_what_cannot_be_built_leaves_nothing(tmp_path: Path, checkout: Path, fault: str) -> None:
    """A conflict, an error of the compiler or of cmake, a dirty or another checkout: named, and no archive is written."""
    words = "build_failed"
    changes: dict[str, object] = {}
    if fault == "conflict":
        words, changes = (
            "patch_conflict",
            {"queue": read_queue(patches(tmp_path, PATCH.replace("return device;", "no")))},
        )
    elif fault == "compile":
        (checkout / "src/cpu.c").write_text("int broken(\n", encoding="utf-8")
    elif fault == "cmake":
        (checkout / "CMakeLists.txt").write_text("message(FATAL_ERROR stop)\n", encoding="utf-8")
    elif fault == "no library":
        words = "no libllama"
        text = (checkout / "CMakeLists.txt").read_text(encoding="utf-8").replace("llama SHARED", "llama STATIC")
        (checkout / "CMakeLists.txt").write_text(text, encoding="utf-8")
    elif fault == "dirty":
        words = "in no commit"
        git(checkout)
        (checkout / "src/cpu.c").write_text("int x;\n", encoding="utf-8")
    else:
        words, changes = "wanted is", {"commit": "0" * 40}
        git(checkout)
    with pytest.raises(BuildFailed, match=words):
        make(checkout, tmp_path / "out" / "a.tar", **changes)
    assert not (tmp_path / "out").exists()


def test_a_commit_is_fetched_from_a_repository(tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a checkout, exactly the commit is fetched; one that is not there is named."""
    commit = git(checkout)
    monkeypatch.setenv("LLAMA_UPSTREAM_URL", checkout.as_uri())
    monkeypatch.setattr("agent.build.sources._DELAY_SECONDS", 0.0)
    fetched = make(None, tmp_path / "a.tar", commit=commit)
    assert fetched == make(checkout, tmp_path / "b.tar")
    with pytest.raises(BuildFailed, match="cannot be fetched"):
        make(None, tmp_path / "c.tar", commit="0" * 40)


def test_sources_without_a_repository_are_copied_whole(tmp_path: Path, checkout: Path) -> None:
    """Of a tree without git only build folders at its root are left out; a source that is called `build-...` is a source."""
    sources = ("cmake/build-info.cmake", "build-xcframework.sh", "src/build/x.c")
    for name in (*sources, "build/bin/old.so", "build-cuda/bin/old.so", "src/__pycache__/x.pyc"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("", encoding="utf-8")
    assert copy_checkout(checkout, tmp_path / "copy") is None
    copied = {
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if path.is_file()
    }
    here = {path.relative_to(checkout).as_posix() for path in checkout.rglob("*") if path.is_file()}
    assert here - copied == {"build/bin/old.so", "build-cuda/bin/old.so", "src/__pycache__/x.pyc"}
    assert set(sources) <= copied


def test_a_folder_never_mixes_with_an_older_build(tmp_path: Path, checkout: Path) -> None:
    """A folder may hold other things, is verified all the same, and a second build into it is refused."""
    target = tmp_path / "out"
    (target / "wheels").mkdir(parents=True)
    (target / "wheels/binding.whl").write_bytes(b"x")
    record = make(checkout, target)
    assert verify_folder(target) == record
    with pytest.raises(BuildFailed, match="exists"):
        make(checkout, target)


def test_command_builds_what_the_plan_says(tmp_path: Path, checkout: Path) -> None:
    """`build --plan --key` takes backend and commit from the plan, and refuses another commit or queue."""
    plan = build_plan(load_manifest(), event="nightly", families=["qwen3-dense"], backends=["cpu"], subject="twin")
    write_plan(plan, tmp_path / "plan.json")
    key = plan.builds[0].key
    arguments = ("build", "--plan", tmp_path / "plan.json", "--llama-src", checkout, "-o", tmp_path / "a.tar", "--json")
    ran = skippy(*arguments, "--key", key)
    assert ran.code == 0, ran.err
    assert (ran.json["commit"], ran.json["key"], ran.json["backend"]) == (plan.pin.commit, key, "cpu")
    assert skippy(*arguments, "--key", "other").code == 2
    assert skippy(*arguments, "--key", key, "--patches", patches(tmp_path)).code == 1
    git(checkout)
    assert skippy(*arguments, "--key", key).code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--backend", "cpu"),
        ("--backend", "tpu", "--llama-src", "."),
        ("--plan", "plan.json"),
        ("--backend", "cpu", "--llama-src", "nowhere"),
        ("--backend", "cpu", "--llama-src", ".", "--cmake-arg", "-P/etc/x"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """What does not go together is exit code 2 without a traceback."""
    ran = skippy("build", *arguments, "-o", tmp_path / "a.tar")
    assert ran.code == 2
    assert "Traceback" not in ran.err


def installed_build(tmp_path: Path, checkout: Path) -> Path:
    """The libraries that came with the binding, packed as a build with the layout of the headers."""
    return pack_installed(tmp_path, layout_of_checkout(checkout))


def test_certify_uses_the_build_it_is_given(tmp_path: Path, checkout: Path) -> None:
    """`certify --build` passes on verified libraries, and the receipt has the digests of exactly those."""
    archive = installed_build(tmp_path, checkout)
    ran = skippy(
        *("certify", "qwen3-dense", "--twin", "--device", "CPU", "--build", archive),
        *("--receipts", tmp_path / "receipts", "--json"),
    )
    assert ran.code == 0, ran.err
    digests = ran.json[0]["engine"]["libraries"]
    with tarfile.open(archive) as tar:
        data = json.load(tar.extractfile("build.json") or pytest.fail("no record"))
    recorded = {member["path"]: member.get("sha256") for member in data["members"]}
    assert digests
    assert all(recorded[f"lib/{name}"] == digest for name, digest in digests.items())


def test_abi_of_a_build_leaves_its_assertions(tmp_path: Path, checkout: Path) -> None:
    """`abi --build` compares with the recorded layout and writes it; with a checkout, the build must be of that."""
    archive = installed_build(tmp_path, checkout)
    assert skippy("abi", "--build", archive, "--output", tmp_path / "out").code == 0
    assert (tmp_path / "out/llama-assertions.c").is_file()
    assert skippy("abi", "--build", archive, "--llama-src", checkout).code == 0
    (checkout / "include/llama.h").write_text(LLAMA_H + "struct llama_more { int a; };\n", encoding="utf-8")
    ran = skippy("abi", "--build", archive, "--llama-src", checkout)
    assert (ran.code, "AB002" in ran.out) == (1, True)


def test_certify_refuses_a_build_before_any_model(tmp_path: Path, checkout: Path) -> None:
    """Moved structs, libraries that do not load, a changed byte, or another pin than the plan's: exit code 2, no receipt."""
    moved = write_checkout(
        tmp_path / "moved", llama_h=LLAMA_H.replace("    int32_t main_gpu;", "    void * x;\n    int32_t main_gpu;")
    )
    toy = tmp_path / "toy.tar"
    make(checkout, toy)
    plan = build_plan(load_manifest(), event="nightly", families=["qwen3-dense"], backends=["cpu"], subject="twin")
    write_plan(plan, tmp_path / "plan.json")
    changed = tmp_path / "changed.tar"
    data = bytearray(installed_build(tmp_path, checkout).read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(data)
    (tmp_path / "again").mkdir()
    receipts = ("--receipts", tmp_path / "receipts")
    family = ("qwen3-dense", "--twin")
    for build_file, subject, words in (
        (installed_build(tmp_path / "again", moved), family, "AB010"),
        (toy, family, "AB011"),
        (changed, family, "is not what was built"),
        (toy, ("--plan", tmp_path / "plan.json"), "the pin is"),
    ):
        ran = skippy("certify", *subject, "--build", build_file, *receipts)
        assert (ran.code, words in ran.err) == (2, True), ran.err
    assert not (tmp_path / "receipts").exists()
