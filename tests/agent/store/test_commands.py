"""`skippy-agent fetch`, `cache` and `certify`, as a user calls them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent.cli import main
from agent.store.locks import shared
from agent.store.root import TAG, open_root
from agent.store.space import parse_size
from agent.twin.build import build_twin
from agent.twin.catalog import recipe_for
from matrixgen.manifest import load_manifest
from matrixgen.plan import build_plan, write_plan
from tests.agent.store.conftest import REPO, REVISION, Opener, fetch, model_bytes, wanted
from tests.agent.store.hub_server import Hub
from tests.agent.store.privilege import closed

ROOT = Path(__file__).parents[3]
DATA = [model_bytes(100_000 + seed, seed) for seed in range(4)]
FILES = [wanted(data, f"m{index}.gguf") for index, data in enumerate(DATA)]


class Usage(NamedTuple):
    """As `shutil.disk_usage` gives it."""

    total: int
    used: int
    free: int


class Done(NamedTuple):
    """What a call of the command left."""

    returncode: int
    stdout: str
    stderr: str


def agent(*arguments: str, **variables: str) -> Done:
    """Call the command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["skippy-agent", *arguments])
        for name, value in variables.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as caught:
            main()
    assert isinstance(caught.value.code, int)
    return Done(caught.value.code, out.getvalue(), err.getvalue())


@pytest.fixture
def filled(hub: Hub, store: Opener) -> Any:
    """A store with four files, used in the order of their numbers."""
    for file, data in zip(FILES, DATA, strict=True):
        hub.files[REPO, REVISION, file.path] = data
    opened = store(f"hub:{hub.address}")
    for index, file in enumerate(FILES):
        fetch(opened, [file])
        os.utime(opened.root.lock(file.sha256), (1e9 + index, 1e9 + index))
    return opened


def as_json(done: Done) -> Any:
    """Standard output, which holds JSON and nothing else."""
    return json.loads(done.stdout)


def test_ls_lists_the_least_recently_used_first(filled: Any) -> None:
    """Digest, size, names, last use, and what is in use now."""
    with filled.lend([FILES[1]]):
        done = agent("cache", "ls", "--store", str(filled.root.path), "--json")
        rows = as_json(done)["blobs"]
    assert done.returncode == 0
    assert [row["names"] for row in rows] == [["m0.gguf"], ["m2.gguf"], ["m3.gguf"], ["m1.gguf"]]
    assert [row["leased"] for row in rows] == [False, False, False, True]
    assert [row["size"] for row in rows] == [len(DATA[index]) for index in (0, 2, 3, 1)]
    table = agent("cache", "ls", "--store", str(filled.root.path))
    assert table.returncode == 0
    assert "m2.gguf" in table.stdout


def test_verify_finds_what_no_stamp_shows(filled: Any) -> None:
    """A bit that flipped on the disk without any sign is found, put aside, and reported with exit code 4."""
    blob = filled.root.blob(FILES[2].sha256)
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.write(b"X")
    filled.stamps.remember(blob, FILES[2].sha256)  # as if nothing had happened
    assert fetch(filled, [FILES[2]]) != [DATA[2]], "a stamp that holds is trusted: this is what verify is for"
    done = agent("cache", "verify", "--store", str(filled.root.path))
    assert done.returncode == 4
    assert f"wrong_bytes: {FILES[2].sha256}" in done.stdout
    assert fetch(filled, [FILES[2]]) == [DATA[2]]
    again = agent("cache", "verify", "--store", str(filled.root.path), "--json")
    assert again.returncode == 0
    assert [row["good"] for row in as_json(again)["blobs"]] == [True] * 4


def test_verify_while_another_process_cleans(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob that goes between the list and the look at it is no wrong one."""
    from agent.store.progress import Silence
    from agent.store.tidy import entries, verify

    listed = entries(filled.root)
    filled.root.blob(FILES[1].sha256).unlink()
    monkeypatch.setattr("agent.store.tidy.entries", lambda _: listed)
    results = verify(filled.root, filled.stamps, Silence(), patience=1)
    assert [(entry.names, good) for entry, good in results] == [
        (("m0.gguf",), True),
        (("m2.gguf",), True),
        (("m3.gguf",), True),
    ]


def test_ls_while_another_process_cleans(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that goes while the list is made."""
    blobs = filled.root.blobs()
    filled.root.blob(FILES[1].sha256).unlink()
    monkeypatch.setattr("agent.store.root.Root.blobs", lambda _: blobs)
    done = agent("cache", "ls", "--store", str(filled.root.path), "--json")
    assert [row["names"] for row in as_json(done)["blobs"]] == [["m0.gguf"], ["m2.gguf"], ["m3.gguf"]]


@pytest.mark.parametrize("command", ["ls", "verify", "gc"])
def test_a_store_below_a_closed_folder_is_refused(tmp_path: Path, command: str) -> None:
    """Exit code 4 and the cause, not a fault of the program."""
    agent("cache", command, "--store", str(tmp_path))  # what is imported on the way is imported now
    with closed(tmp_path / "closed") as folder:
        done = agent("cache", command, "--store", str(folder / "store"))
    assert done.returncode == 4
    assert "store_permissions: " in done.stderr


def test_gc_removes_the_least_recently_used_and_spares_what_is_in_use(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oldest first, as many as are needed, never what is leased; a dry run removes nothing."""
    import shutil

    from agent.store.tidy import clean

    held = {path.name for path in filled.root.blobs()}
    monkeypatch.setattr(
        shutil,
        "disk_usage",
        lambda _: Usage(10**9, 0, 10**6 - sum(path.stat().st_size for path in filled.root.blobs())),
    )
    target = shutil.disk_usage("").free + 150_000
    dry = clean(filled.root, free=target, dry_run=True)
    assert [entry.names for entry in dry.removed] == [("m0.gguf",), ("m1.gguf",)]
    assert {path.name for path in filled.root.blobs()} == held
    with shared(filled.root.lock(FILES[0].sha256), patience=0):
        dry = clean(filled.root, free=target, dry_run=True)
        assert [entry.names for entry in dry.spared] == [("m0.gguf",)]
        done = clean(filled.root, free=target)
    assert [entry.names for entry in done.removed] == [("m1.gguf",), ("m2.gguf",)]
    assert [entry.names for entry in done.spared] == [("m0.gguf",)]
    assert done.enough
    assert {path.name for path in filled.root.blobs()} == {FILES[0].sha256, FILES[3].sha256}
    assert len(list(filled.root.models.iterdir())) == 2, "views of what is gone go, too"
    assert {path.name for path in (filled.root.path / "locks").iterdir()} == held, "locks stay"


def test_gc_while_another_process_uses_a_file(filled: Any, hub: Hub) -> None:
    """A lease of a running process protects its file; its death, however sudden, ends the lease."""
    code = f"""
import sys
from pathlib import Path
from agent.store.root import open_root
from agent.store.store import Store
from agent.store.wanted import Wanted
store = Store(root=open_root(Path({str(filled.root.path)!r})), sources=())
files = [Wanted(repo={REPO!r}, revision={REVISION!r}, path={FILES[0].path!r}, size={FILES[0].size}, sha256={FILES[0].sha256!r})]
with store.lend(files):
    print("lent", flush=True)
    sys.stdin.read()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "lent\n"
    everything = (
        "cache",
        "gc",
        "--store",
        str(filled.root.path),
        "--free",
        "1000TiB",
        "--json",
    )
    done = agent(*everything)
    assert done.returncode == 4, "not as much is free as was asked for"
    assert [row["names"] for row in as_json(done)["spared"]] == [["m0.gguf"]]
    assert [path.name for path in filled.root.blobs()] == [FILES[0].sha256]
    child.kill()
    child.communicate()
    assert [row["names"] for row in as_json(agent(*everything))["removed"]] == [["m0.gguf"]]
    assert filled.root.blobs() == []


def test_gc_unpinned_keeps_what_the_manifests_pin(filled: Any, tmp_path: Path) -> None:
    """Files of revisions that no row pins any more go, the others stay, however full the disk is not."""
    manifests = write_manifests(tmp_path, [FILES[1]])
    done = agent(
        "cache", "gc", "--unpinned", "--free", "0", "--store", str(filled.root.path), "--manifests", str(manifests)
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in filled.root.blobs()] == [FILES[1].sha256]


@pytest.mark.parametrize("tag", [None, "", "Signature: 8a477f597d28d172789f06886806bc55\n# of another program\n"])
def test_only_our_own_folders_are_cleaned(tmp_path: Path, tag: str | None) -> None:
    """A folder without a tag, or with the tag of another program, is refused and nothing in it is touched."""
    precious = tmp_path / "precious" / "sha256" / "aa" / ("a" * 64)
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    if tag is not None:
        (tmp_path / "precious" / TAG).write_text(tag)
    done = agent("cache", "gc", "--free", "1000TiB", "--store", str(tmp_path / "precious"))
    assert done.returncode == 2
    assert precious.read_text() == "precious"


def test_gc_removes_leftovers(filled: Any) -> None:
    """Old unfinished files and the quarantine go first."""
    filled.root.partials.mkdir(exist_ok=True)
    partial = filled.root.partial("b" * 64)
    partial.write_bytes(b"x")
    os.utime(partial, (time.time() - 8 * 86400,) * 2)
    filled.root.quarantined("c" * 64).parent.mkdir()
    filled.root.quarantined("c" * 64).write_bytes(b"x" * 1000)
    done = as_json(agent("cache", "gc", "--free", "0", "--store", str(filled.root.path), "--json"))
    assert done["freed"] == 1000
    assert not partial.exists()
    assert len(filled.root.blobs()) == 4


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        ("20GiB", 20 * 2**30),
        ("20G", 20 * 2**30),
        ("1.5m", 3 * 2**19),
        ("7 KiB", 7168),
        ("0", 0),
        ("5b", 5),
    ],
)
def test_sizes(text: str, size: int) -> None:
    """As people write them."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1e99", "nan", "GiB", "1 PiB 2"])
def test_what_is_no_size(text: str) -> None:
    """Refused, in the option too."""
    with pytest.raises(ValueError, match=r"no size|convert|Infinity|NaN"):
        parse_size(text)


# -- fetch and certify -----------------------------------------------------------------------------------------------------


def write_manifests(folder: Path, files: list[Any], arch: str = "llama") -> Path:
    """The project's manifests, with one small family whose files are these."""
    import shutil

    shutil.copytree(ROOT / "manifests", folder / "manifests")
    path = folder / "manifests" / "families.json"
    document = json.loads(path.read_text())
    row = next(row for row in document["families"] if row["family"] == "llama")
    row["artifact"] = {
        "repo": REPO,
        "revision": REVISION,
        "selector": "Q4",
        "files": {file.path: {"size": file.size, "sha256": file.sha256} for file in files},
    }
    row["arch"] = arch
    document["families"] = [row]
    path.write_text(json.dumps(document))
    return folder / "manifests"


def fetch_arguments(hub: Hub, manifests: str, folder: Path) -> tuple[str, ...]:
    """Fetch the only family of the manifests into a store in the folder."""
    store = str(folder / "store")
    return ("fetch", "llama", "--manifests", manifests, "--store", store, "--source", f"hub:{hub.address}")


def test_fetch_warms_the_store(hub: Hub, tmp_path: Path) -> None:
    """The paths are printed; the second call is offline and gives the same paths."""
    for file, data in zip(FILES, DATA, strict=True):
        hub.files[REPO, REVISION, file.path] = data
    manifests = str(write_manifests(tmp_path, FILES))
    base = fetch_arguments(hub, manifests, tmp_path)
    first = agent(*base)
    assert first.returncode == 0, first.stderr
    assert [Path(line).read_bytes() for line in first.stdout.splitlines()] == DATA
    again = agent(*base, "--offline", "--json")
    assert again.returncode == 0
    assert as_json(again)[0]["paths"] == first.stdout.splitlines()
    assert hub.gets() == len(FILES)


def test_fetch_from_a_store_that_may_only_be_read_prints_what_stays(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paths are good after the command has ended, too."""
    hub.files[REPO, REVISION, FILES[0].path] = DATA[0]
    base = fetch_arguments(hub, str(write_manifests(tmp_path, FILES[:1])), tmp_path)
    assert agent(*base).returncode == 0
    monkeypatch.setattr(os, "access", lambda _, mode, **__: mode != os.W_OK)
    done = agent(*base)
    assert done.returncode == 0, done.stderr
    assert [Path(line).read_bytes() for line in done.stdout.splitlines()] == DATA[:1]


def test_fetch_says_what_failed(hub: Hub, tmp_path: Path) -> None:
    """Exit code 4, the cause on standard error, in JSON where that is asked for, and never a traceback."""
    manifests = str(write_manifests(tmp_path, FILES[:1]))
    base = fetch_arguments(hub, manifests, tmp_path)
    done = agent(*base)
    assert done.returncode == 4
    assert "artifact_gone" in done.stderr
    assert "Traceback" not in done.stderr
    assert "artifact_gone" in as_json(agent(*base, "--json"))[0]["error"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["llama", "--plan", "x"], 2),
        (["--leg", "x"], 2),
        (["no-such-family"], 2),
        (["llama", "--source", "nonsense:x"], 2),
        (["llama", "--source", ""], 2),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, arguments: list[str], code: int) -> None:
    """Refused with a message, before anything is made."""
    done = agent("fetch", *arguments, SKIPPY_STORE=str(tmp_path / "store"))
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr


def test_a_leg_on_weights_takes_them_from_the_store(hub: Hub, tmp_path: Path) -> None:
    """certify without --model: the plan's files are fetched, verified, tested, and named in the receipt."""
    model = build_twin(recipe_for("llama", family="llama"), tmp_path / "twins").read_bytes()
    file = wanted(model, "weights.gguf")
    hub.files[REPO, REVISION, file.path] = model
    manifests = write_manifests(tmp_path, [file])
    plan = tmp_path / "plan.json"
    manifest = load_manifest(manifests)
    write_plan(build_plan(manifest, event="llama-bump", families=["llama"], backends=["cpu"]), plan)
    where = (
        "--manifests",
        str(manifests),
        "--store",
        str(tmp_path / "store"),
        "--receipts",
        str(tmp_path / "receipts"),
    )
    base = ("certify", "--plan", str(plan), *where, "--json")
    missing = agent(*base, "--offline", "--source", f"hub:{hub.address}")
    assert missing.returncode == 4
    (receipt,) = as_json(missing)
    assert all(lane["status"] == "infra" and "offline" in lane["summary"] for lane in receipt["lanes"])
    done = agent(*base, "--source", f"hub:{hub.address}")
    (receipt,) = as_json(done)
    assert receipt["subject"]["files"] == [{"name": "weights.gguf", "size": file.size, "sha256": file.sha256}]
    assert "infra" not in {lane["status"] for lane in receipt["lanes"]}, done.stderr
    assert open_root(tmp_path / "store").blob(file.sha256).is_file()
