"""The store itself: what is believed, what is locked, what is left behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.errors import FetchFailed, NoSpace, NotAStore, NotPinned, StoreBusy, StoreDenied
from agent.store.locks import exclusive, shared, try_exclusive
from agent.store.root import TAG, existing_root, open_root
from agent.store.stamps import Stamps
from agent.store.tidy import sweep_partials
from agent.store.wanted import Wanted, first_shard
from tests.agent.store.conftest import REPO, REVISION, Notes, Opener, fetch, leftovers, model_bytes, wanted
from tests.agent.store.hub_server import Hub
from tests.agent.store.privilege import closed

DATA = model_bytes(400_000)
FILE = wanted(DATA)
FACTS: dict[str, Any] = {"repo": REPO, "revision": REVISION, "path": "m.gguf", "size": 1, "sha256": "0" * 64}


def old(path: Path, seconds: float = 3600) -> None:
    """Make a file look as if it had been written some time ago."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))


def overwrite(path: Path, data: bytes) -> None:
    """Change bytes in place, also of a file that is read-only."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(data)


# -- what is asked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        {"revision": "main"},
        {"revision": "a" * 39},
        {"revision": "A" * 40},
        {"sha256": ""},
        {"sha256": "0" * 63},
        {"size": -1},
        {"path": "../m.gguf"},
        {"path": "/etc/passwd"},
        {"path": ""},
        {"path": "a\\b"},
        {"path": "a\nb"},
        {"repo": "model"},
        {"repo": "../x"},
        {"repo": "a/b/c"},
    ],
)
def test_only_exact_files_can_be_wanted(fault: dict[str, Any]) -> None:
    """A branch, a missing digest, a path that leads out: refused before anything is asked."""
    assert str(Wanted(**FACTS)).startswith("m.gguf of ")
    with pytest.raises(NotPinned, match="correct the row"):
        Wanted(**FACTS | fault)


def test_the_first_shard_is_opened_whatever_the_order() -> None:
    """Shards may be listed in any order; the one numbered 1 is opened. Without shards it is the first file."""
    names = ["m-00003-of-00003.gguf", "m-00001-of-00003.gguf", "m-00002-of-00003.gguf"]
    assert first_shard(tuple(Wanted(**FACTS | {"path": name}) for name in names)).path == names[1]
    assert first_shard(tuple(Wanted(**FACTS | {"path": name}) for name in ("b.gguf", "a.gguf"))).path == "b.gguf"


# -- what is believed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_mtime", [False, True])
@pytest.mark.parametrize("damage", ["flip", "truncate", "replace"])
def test_a_damaged_blob_is_found_before_use_and_fetched_again(
    hub: Hub, store: Opener, damage: str, keep_mtime: bool
) -> None:
    """A blob that changed (also with its mtime put back) is put aside, fetched anew, and said."""
    hub.files[REPO, REVISION, FILE.path] = DATA
    notes = Notes()
    opened = store(f"hub:{hub.address}", progress=notes)
    fetch(opened, [FILE])
    blob = opened.root.blob(FILE.sha256)
    times = (blob.stat().st_atime_ns, blob.stat().st_mtime_ns)
    if damage == "flip":
        overwrite(blob, b"GGUX")
    elif damage == "truncate":
        blob.chmod(0o644)
        os.truncate(blob, 1000)
    else:
        blob.unlink()
        blob.write_bytes(DATA[:-1] + b"\0")
    if keep_mtime:
        os.utime(blob, ns=times)
    assert fetch(store(f"hub:{hub.address}", progress=notes), [FILE]) == [DATA]
    assert any("quarantine" in note for note in notes.notes)
    assert hub.gets() == 2
    assert opened.root.quarantined(FILE.sha256).is_file()


def test_a_good_blob_is_hashed_once(hub: Hub, store: Opener, tmp_path: Path) -> None:
    """Unchanged files are not read again, also not by the next process; a touched one is."""
    hub.files[REPO, REVISION, FILE.path] = DATA
    fetch(store(f"hub:{hub.address}"), [FILE])
    second = Notes()
    opened = store(progress=second)
    fetch(opened, [FILE])
    assert second.bytes == {}
    blob = opened.root.blob(FILE.sha256)
    old(blob)
    third = Notes()
    assert fetch(store(progress=third), [FILE]) == [DATA]
    assert third.bytes == {str(blob): len(DATA)}
    fourth = Notes()
    fetch(store(progress=fourth), [FILE])
    assert fourth.bytes == {}


def test_a_stamp_that_is_no_stamp_is_nothing(tmp_path: Path) -> None:
    """A stamp that is cut, of another file, or of another time leads to hashing, never to trust."""
    path = tmp_path / "file"
    path.write_bytes(b"content")
    old(path)
    good = hashlib.sha256(b"content").hexdigest()
    assert Stamps(tmp_path / "stamps").sha256_of(path) == good
    (stamp,) = (tmp_path / "stamps").glob("*.json")
    text = stamp.read_text()
    lie = json.loads(text) | {"sha256": "0" * 64}
    for broken in (
        text[:20],
        "",
        "[]",
        "{}",
        json.dumps(lie | {"path": "/elsewhere"}),
        json.dumps(lie | {"facts": [0] * 5}),
    ):
        stamp.write_text(broken)
        assert Stamps(tmp_path / "stamps").sha256_of(path) == good
    stamp.write_text(json.dumps(lie))
    assert Stamps(tmp_path / "stamps").sha256_of(path) == "0" * 64, "a stamp that holds is what is used"


def test_a_fresh_file_is_not_stamped(tmp_path: Path) -> None:
    """A file written a moment ago may change within the same tick of the clock, so it is hashed again next time."""
    path = tmp_path / "file"
    path.write_bytes(b"content")
    Stamps(tmp_path / "stamps").sha256_of(path)
    assert Stamps(tmp_path / "stamps").known(path) is None


# -- the folder ------------------------------------------------------------------------------------------------------------


def test_a_store_is_made_only_where_nothing_is(tmp_path: Path) -> None:
    """A new folder gets its tag; one with other things in it is refused and left alone."""
    root = open_root(tmp_path / "new" / "store")
    assert (root.path / TAG).read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "thesis.txt").write_text("")
    with pytest.raises(NotAStore, match="not a store"):
        open_root(tmp_path / "documents")
    assert [path.name for path in (tmp_path / "documents").iterdir()] == ["thesis.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreDenied, match="is a file"):
        open_root(tmp_path / "file")


def test_a_store_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    """Below somebody else's folder, or with a name that no file system takes: store_permissions, and nothing is made."""
    with closed(tmp_path / "closed") as folder, pytest.raises(StoreDenied, match="Permission denied"):
        open_root(folder / "store")
    for look in (open_root, existing_root):
        with pytest.raises(StoreDenied, match="File name too long"):
            look(tmp_path / ("a" * 300))
    with pytest.raises(NotAStore, match="is no store"):
        existing_root(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.skipif(not hasattr(os, "setresuid") or os.getuid() != 0, reason="needs root, to become somebody else")
def test_a_store_of_somebody_else_is_readable(hub: Hub, store: Opener) -> None:
    """A user who may only read is lent what is there, and told what to do about what is not."""
    hub.files[REPO, REVISION, FILE.path] = DATA
    opened = store(f"hub:{hub.address}")
    fetch(opened, [FILE])
    with tempfile.TemporaryDirectory() as place:  # pytest closes its own folder to others
        theirs = Path(place) / "store"
        shutil.copytree(opened.root.path, theirs, symlinks=True)
        Path(place).chmod(0o755)
        _read_as_nobody(theirs)


def _read_as_nobody(theirs: Path) -> None:
    other = wanted(b"other", "other.gguf")
    code = f"""
import os, sys, tempfile
from pathlib import Path
from agent.errors import StoreDenied
from agent.store.root import open_root
from agent.store.store import Store
from agent.store.wanted import Wanted
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
root = open_root(Path({str(theirs)!r}))
store = Store(root=root, sources=())
with store.lend([Wanted(**{_facts(FILE)!r})]) as lent:
    print(root.writable, sum(len(path.read_bytes()) for path in lent.values()))
try:
    with store.lend([Wanted(**{_facts(other)!r})]): pass
except StoreDenied as error:
    print(error)
"""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        env={"PYTHONPATH": site, "PATH": "", "TMPDIR": "/tmp"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"False {len(DATA)}\nstore_permissions: ")


def _facts(file: Wanted) -> dict[str, Any]:
    return {name: getattr(file, name) for name in ("repo", "revision", "path", "size", "sha256")}


# -- room ------------------------------------------------------------------------------------------------------------------


def test_room_is_asked_for_before_the_first_byte(hub: Hub, store: Opener) -> None:
    """What does not fit is refused with the shortfall and the next step, and nobody is asked for a byte."""
    hub.files[REPO, REVISION, FILE.path] = DATA
    with pytest.raises(NoSpace, match=r"no_space: .* are missing\. Make room \(`skippy-agent cache gc --free"):
        fetch(store(f"hub:{hub.address}", floor=2**60), [FILE])
    assert hub.requests.total() == 0


def test_files_in_place_need_no_room(store: Opener, tmp_path: Path) -> None:
    """A file that is used where it is does not count."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / FILE.path).write_bytes(DATA)
    assert fetch(store(str(tmp_path / "models"), floor=2**60), [FILE]) == [DATA]


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of two MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_fills_up_is_no_network_failure(hub: Hub, store: Opener, small_disk: Path) -> None:
    """ENOSPC in the middle of a transfer is no_space, nothing is left of the half file, and no other source is blamed."""
    data = model_bytes(3 * 2**20)
    file = wanted(data)
    hub.files[REPO, REVISION, file.path] = data
    opened = store(f"hub:{hub.address}", f"hub:{hub.address}", folder="small")
    with pytest.raises(NoSpace, match="no_space"):  # seen by the first look
        fetch(opened, [file])
    assert hub.gets() == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent.store.store.require_space", lambda *_: None)
        with pytest.raises(
            NoSpace, match=r"the disk of .* is full"
        ):  # and by the transfer, where another process took the room meanwhile
            fetch(opened, [file])
    assert hub.gets() == 1
    assert leftovers(opened) == []
    assert opened.root.blobs() == []
    small = wanted(DATA, "small.gguf")
    hub.files[REPO, REVISION, small.path] = DATA
    assert fetch(opened, [small]) == [DATA]


def test_a_limit_on_the_size_of_files_is_no_space(hub: Hub, store: Opener) -> None:
    """EFBIG (a quota, `ulimit -f`) is named as the full disk that it amounts to."""
    import resource

    hub.files[REPO, REVISION, FILE.path] = DATA
    opened = store(f"hub:{hub.address}")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(NoSpace):
            fetch(opened, [FILE])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert leftovers(opened) == []


# -- several at once -------------------------------------------------------------------------------------------------------


def test_readers_share_and_a_writer_waits(tmp_path: Path) -> None:
    """Leases exist side by side; an exclusive lock does not come beside one."""
    lock = tmp_path / "locks" / "x"
    with shared(lock, patience=1), shared(lock, patience=1), try_exclusive(lock) as writer:
        assert writer is None
    with try_exclusive(lock) as writer:
        assert writer is not None
    assert lock.is_file(), "locks are never unlinked"


def test_a_holder_without_progress_ends_the_wait(tmp_path: Path) -> None:
    """Waiting is bounded by signs of life: a silent holder is named busy, one that beats is waited for."""
    lock = tmp_path / "x"
    release = threading.Event()
    with try_exclusive(lock) as held:
        assert held is not None
        with pytest.raises(StoreBusy, match="fuser"), exclusive(lock, patience=0.2):
            pass

        def beat() -> None:
            for step in range(8):
                os.utime(lock, (step, step))
                release.wait(0.1)

        beater = threading.Thread(target=beat)
        beater.start()
        told: list[int] = []
        with pytest.raises(StoreBusy), exclusive(lock, patience=0.4, on_wait=lambda: told.append(1)):
            pass
        assert not beater.is_alive(), "it was waited for as long as the holder showed signs of life"
        assert told == [1]


@pytest.mark.parametrize("age", [-1200.0, 0.0, 1200.0])
def test_a_leftover_lock_file_of_any_age_holds_nobody(hub: Hub, store: Opener, age: float) -> None:
    """The lock of a process that died is a file like any other, whatever its time says (clocks of hosts differ)."""
    hub.files[REPO, REVISION, FILE.path] = DATA
    opened = store(f"hub:{hub.address}")
    lock = opened.root.lock(FILE.sha256)
    lock.parent.mkdir()
    lock.touch()
    old(lock, age)
    assert fetch(opened, [FILE]) == [DATA]


def test_partials_of_days_ago_are_swept(store: Opener) -> None:
    """An unfinished file goes after a week, unless somebody works on it."""
    opened = store()
    opened.root.partials.mkdir()
    for digest, days in (("a" * 64, 8), ("b" * 64, 8), ("c" * 64, 6)):
        opened.root.partial(digest).write_bytes(b"x")
        old(opened.root.partial(digest), days * 86400)
    with exclusive(opened.root.lock("b" * 64), patience=0):
        assert sweep_partials(opened.root) == 1
    assert [path.name[0] for path in leftovers(opened)] == ["b", "c"]


def test_no_source_at_all_is_said(store: Opener) -> None:
    """An empty list of sources is an error with the next step."""
    with pytest.raises(FetchFailed, match="--source"):
        fetch(store(), [FILE])
