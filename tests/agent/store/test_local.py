"""What is on this machine already: folders, and Hugging Face caches in every state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import FetchFailed, SourceUnknown
from agent.store.sources.spec import parse_sources
from tests.agent.store.conftest import REPO, REVISION, Notes, Opener, fetch, model_bytes, wanted
from tests.agent.store.hub_server import Hub
from tests.agent.store.privilege import closed

DATA = [model_bytes(50_000, seed) for seed in range(3)]
FILES = [wanted(data, f"Q4/m-0000{index + 1}-of-00003.gguf") for index, data in enumerate(DATA)]


def fill_cache(cache: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let huggingface_hub itself fill a cache; returns the snapshot's folder."""
    from huggingface_hub import hf_hub_download

    for file, data in zip(FILES, DATA, strict=True):
        hub.files[REPO, REVISION, file.path] = data
        hf_hub_download(
            REPO,
            file.path,
            revision=REVISION,
            cache_dir=cache,
            endpoint=hub.address,
            token=False,
            local_files_only=False,
        )
    return cache / "models--acme--model-GGUF" / "snapshots" / REVISION


@pytest.fixture
def cache(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that huggingface_hub made."""
    fill_cache(tmp_path / "hub", hub, monkeypatch)
    hub.requests.clear()
    return tmp_path / "hub"


def snapshot(cache: Path) -> Path:
    """The folder of the revision."""
    return cache / "models--acme--model-GGUF" / "snapshots" / REVISION


def read_only(folder: Path) -> None:
    """Take the right to write from a tree."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)


def test_a_cache_is_used_in_place(hub: Hub, cache: Path, store: Opener) -> None:
    """All shards come from the cache without a request, without a copy, and without a change to it."""
    before = sorted((path, path.lstat().st_mtime_ns) for path in cache.rglob("*"))
    read_only(cache)
    opened = store(f"hub-cache:{cache}", f"hub:{hub.address}", floor=2**60)
    with opened.lend(FILES) as lent:
        assert [lent[file].read_bytes() for file in FILES] == DATA
        assert all(lent[file].resolve().is_relative_to(cache) for file in FILES)
    assert hub.requests.total() == 0
    assert opened.root.blobs() == []
    assert sorted((path, path.lstat().st_mtime_ns) for path in cache.rglob("*")) == before


def test_an_unchanged_cache_is_hashed_once(cache: Path, store: Opener) -> None:
    """The second run reads nothing but stamps."""
    for path in (cache / "models--acme--model-GGUF" / "blobs").iterdir():
        os.utime(path, (1e9, 1e9))
    first, second = Notes(), Notes()
    fetch(store(f"hub-cache:{cache}", progress=first), FILES)
    fetch(store(f"hub-cache:{cache}", progress=second), FILES)
    assert sum(first.bytes.values()) == sum(map(len, DATA))
    assert second.bytes == {}


@pytest.mark.parametrize("damage", ["flip", "truncate", "dangling", "missing", "outside", "folder", "pointer"])
def test_a_cache_is_never_trusted(hub: Hub, cache: Path, store: Opener, tmp_path: Path, damage: str) -> None:
    """Whatever is wrong with one shard of a cache, that shard comes from the next source and the cache stays as it is."""
    link = snapshot(cache) / FILES[1].path
    blob = link.resolve()
    if damage == "flip":
        blob.write_bytes(DATA[1][:-1] + bytes([DATA[1][-1] ^ 1]))
    elif damage == "truncate":
        blob.write_bytes(DATA[1][:100])
    elif damage == "pointer":
        blob.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    elif damage == "dangling":
        blob.unlink()
    elif damage == "missing":
        blob.unlink()
        link.unlink()
    elif damage == "outside":
        (tmp_path / "elsewhere").write_bytes(b"somebody's secret")
        blob.unlink()
        link.unlink()
        link.symlink_to(tmp_path / "elsewhere")
    else:
        blob.unlink()
        link.unlink()
        link.mkdir()
    before = sorted(str(path) for path in cache.rglob("*"))
    notes = Notes()
    opened = store(f"hub-cache:{cache}", f"hub:{hub.address}", progress=notes)
    assert fetch(opened, FILES) == DATA
    assert hub.gets() == 1
    assert sorted(str(path) for path in cache.rglob("*")) == before
    expected = {"flip": "wrong_bytes", "truncate": "wrong_bytes", "pointer": "wrong_bytes", "dangling": "leads nowhere"}
    expected |= {"outside": "outside of the cache"}
    assert damage not in expected or any(expected[damage] in note for note in notes.notes)
    assert not any("secret" in note for note in notes.notes)


def test_an_incomplete_snapshot_is_not_complete_offline(cache: Path, store: Opener) -> None:
    """With a shard missing and no network, the plan's list decides: the missing file is named."""
    link = snapshot(cache) / FILES[1].path
    link.resolve().unlink()
    with pytest.raises(FetchFailed, match=r"m-00002-of-00003.gguf of acme/model-GGUF"):
        fetch(store(f"hub-cache:{cache}", "hub:http://127.0.0.1:1", offline=True), FILES)


def test_a_cache_without_links_is_read(cache: Path, store: Opener) -> None:
    """Where links are not allowed the snapshot holds the files themselves."""
    for file, data in zip(FILES, DATA, strict=True):
        link = snapshot(cache) / file.path
        link.resolve().unlink()
        link.unlink()
        link.write_bytes(data)
    assert fetch(store(f"hub-cache:{cache}"), FILES) == DATA


def test_a_blob_of_another_revision_serves(cache: Path, store: Opener) -> None:
    """The same bytes under another revision are the same bytes."""
    snapshot(cache).rename(snapshot(cache).with_name("b" * 40))
    assert fetch(store(f"hub-cache:{cache}"), FILES) == DATA


def test_the_cache_itself_may_be_a_link(cache: Path, store: Opener, tmp_path: Path) -> None:
    """A cache on another disk, linked to where it is expected, is no foreign place."""
    (tmp_path / "linked").symlink_to(cache)
    assert fetch(store(f"hub-cache:{tmp_path / 'linked'}"), FILES) == DATA


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_the_cache_of_the_environment_is_found(tmp_path: Path, variable: str) -> None:
    """Without a folder the cache is the one that huggingface_hub uses."""
    code = "from agent.store.sources.spec import parse_sources; print(parse_sources(['hub-cache'])[0].name)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        env={variable: str(tmp_path), "HOME": "/nowhere", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    where = tmp_path / "hub" if variable == "HF_HOME" else tmp_path
    assert done.stdout.strip() == f"Hugging Face cache {where}"


@pytest.mark.parametrize("layout", ["store", "hub", "repo", "path", "flat"])
@pytest.mark.parametrize("form", ["plain", "url"])
def test_a_folder_is_used_in_place(store: Opener, tmp_path: Path, layout: str, form: str) -> None:
    """A mirror may be laid out like a store, like the hub, or flat; spaces in its name are no matter."""
    folder = tmp_path / "my models"
    file = FILES[0]
    place = {
        "store": f"sha256/{file.sha256[:2]}/{file.sha256}",
        "hub": f"{file.repo}/{file.revision}/{file.path}",
        "repo": f"{file.repo}/{file.path}",
        "path": file.path,
        "flat": file.name,
    }[layout]
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_bytes(DATA[0])
    opened = store(str(folder) if form == "plain" else folder.as_uri())
    with opened.lend([file]) as lent:
        assert lent[file].read_bytes() == DATA[0]
        assert lent[file].resolve() == folder / place


def test_a_neighbours_file_is_never_taken(store: Opener, tmp_path: Path) -> None:
    """Another row's file in the same folder is not looked at; one of the same name and other bytes is named, and left alone."""
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "mmproj.gguf").write_bytes(DATA[0])
    (folder / FILES[1].name).write_bytes(DATA[2])
    with pytest.raises(FetchFailed, match=f"wrong_bytes: {folder / FILES[1].name} has sha256"):
        fetch(store(str(folder)), [FILES[1]])
    with pytest.raises(FetchFailed, match="does not have it"):
        fetch(store(str(folder)), [wanted(DATA[0], "other.gguf")])
    assert (folder / FILES[1].name).read_bytes() == DATA[2]


def test_the_order_of_sources_is_the_users(hub: Hub, store: Opener, tmp_path: Path) -> None:
    """A folder after the hub is asked after the hub."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / FILES[0].name).write_bytes(DATA[0])
    hub.files[REPO, REVISION, FILES[0].path] = DATA[0]
    fetch(store(str(tmp_path / "models"), f"hub:{hub.address}", folder="a"), FILES[:1])
    assert hub.gets() == 0
    fetch(store(f"hub:{hub.address}", str(tmp_path / "models"), folder="b"), FILES[:1])
    assert hub.gets() == 1
    hub.files.clear()
    assert fetch(store(f"hub:{hub.address}", str(tmp_path / "models"), folder="c"), FILES[:1]) == DATA[:1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://host/x",
        "hub:ftp://host",
        "hub:host",
        "hub:http://host:99999",
        "hub:http://[::bad",
        "hub:http://exa mple/x",
        "hub:http://",
        "hub-cash",
        "s3://",
        "s3://bucket/x?endpont=http://h",
        "release:owner/repo",
        "release:owner@v1",
        "run:owner/repo",
        "run:owner/repo/x",
        "file://host/folder",
        "file:",
        "file://[::1",
        "hub-cache:/no/such/folder",
        "hub-cache:/dev/null",
        "/no/such/folder",
        "unknown:thing",
    ],
)
def test_a_source_that_is_none_is_refused(text: str) -> None:
    """A form that is not known is an error with all forms, never a silent miss."""
    with pytest.raises(SourceUnknown, match="hub-cache:FOLDER"):
        parse_sources([text])


@pytest.mark.parametrize(
    "text",
    [
        "https://me:pw@host",
        "hub:https://me:pw@host",
        "s3://key:secret@bucket/x",
        "s3://bucket/x?endpoint=http://me:pw@host",
        "s3://bucket/x?endpoint=http%3A%2F%2Fme:pw@host",
    ],
)
def test_a_password_in_a_source_is_refused_unseen(text: str) -> None:
    """Credentials have no place in an option, and the error does not repeat them."""
    with pytest.raises(SourceUnknown) as caught:
        parse_sources([text])
    assert "pw" not in str(caught.value).replace("password", "")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["nonsense", "", "ftp://host", "http://host:99999", "http://a b"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    """Before credentials are looked for, which would be the wrong thing to blame."""
    with pytest.raises(SourceUnknown, match="is no address: give https://HOST"):
        parse_sources([f"s3://bucket/x?endpoint={endpoint}"])


@pytest.mark.parametrize("text", ["a" * 300, "~nobodyatall/models"])
def test_a_folder_with_an_impossible_name_is_refused(text: str) -> None:
    """What the system itself refuses to look at is bad input, not a fault of the program."""
    with pytest.raises(SourceUnknown, match="cannot be looked at"):
        parse_sources([text])


@pytest.mark.parametrize("form", ["{}", "hub-cache:{}", "file://{}"])
def test_a_folder_below_a_closed_one_is_refused(tmp_path: Path, form: str) -> None:
    """Somebody else's folder, which cannot even be looked for."""
    with closed(tmp_path / "closed") as folder, pytest.raises(SourceUnknown, match="cannot be looked at"):
        parse_sources([form.format(folder / "models")])


@pytest.mark.parametrize("form", ["{}", "hub-cache:{}"])
def test_a_closed_folder_is_named_and_the_next_source_is_asked(
    hub: Hub, store: Opener, tmp_path: Path, form: str
) -> None:
    """Caches of other users are the rule on shared runners: the agent says so and goes on."""
    hub.files[REPO, REVISION, FILES[0].path] = DATA[0]
    folder, notes = tmp_path / "closed", Notes()
    folder.mkdir()
    opened = store(form.format(folder), f"hub:{hub.address}", progress=notes)
    fetch(opened, [])
    parse_sources([f"hub:{hub.address}"])
    with closed(folder):
        assert fetch(opened, FILES[:1]) == DATA[:1]
    assert any("store_permissions" in note and "cannot be looked at" in note for note in notes.notes)
