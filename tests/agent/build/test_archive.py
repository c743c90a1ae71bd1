"""The archive of a build: what goes in comes out, and everything else is refused before it is used."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.binding.layout import Layout, machine_name
from agent.build.archive import lend_build, members_of, pack, unpack, verify_folder
from agent.build.record import RECORD, BuildRecord
from agent.build.system import check_backend, system_of_build
from agent.errors import AgentError, BuildInvalid


def make_folder(root: Path) -> Path:
    """Libraries with modes and links, as a build leaves them."""
    library = root / "lib"
    library.mkdir(parents=True)
    (library / "libllama.so.0.5.0").write_bytes(b"\x7fELF" + bytes(range(256)) * 40)
    (library / "libllama.so.0.5.0").chmod(0o755)
    (library / "libllama.so.0").symlink_to("libllama.so.0.5.0")
    (library / "libllama.so").symlink_to("libllama.so.0")
    (library / "LICENSE.llama.cpp").write_text("licence\n", encoding="utf-8")
    return root


def make_record(folder: Path, **changes: Any) -> BuildRecord:
    """A record of `folder` for this machine."""
    record = BuildRecord(
        key="key~",
        commit="a" * 40,
        patches=(("0001-a.patch", "b" * 64),),
        patch_digest="c" * 64,
        backend="cpu",
        system=system_of_build([]),
        toolchain={"cc": "cc 12"},
        flags=("-DX=1",),
        layout=Layout(structs={}, source="headers", machine=machine_name()),
        needed={"libllama.so.0.5.0": ("libc.so.6",)},
        members=members_of(folder),
    )
    return dataclasses.replace(record, **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a build."""
    return make_folder(tmp_path / "made")


@pytest.fixture
def archive(tmp_path: Path, folder: Path) -> Path:
    """A sound archive of it."""
    path = tmp_path / "build.tar"
    pack(folder, make_record(folder), path)
    return path


def test_what_goes_in_comes_out(tmp_path: Path, folder: Path, archive: Path) -> None:
    """Bytes, modes and links survive, whatever the umask, and the unpacked folder verifies."""
    before = os.umask(0o077)
    try:
        record = unpack(archive, tmp_path / "out")
    finally:
        os.umask(before)
    assert members_of(tmp_path / "out") == members_of(folder)
    assert (tmp_path / "out/lib/libllama.so").readlink() == Path("libllama.so.0")
    assert (tmp_path / "out/lib/libllama.so.0.5.0").stat().st_mode & 0o777 == 0o755
    assert verify_folder(tmp_path / "out") == record == make_record(folder)


def test_archive_depends_on_its_members_only(tmp_path: Path, archive: Path) -> None:
    """The same members, made elsewhere and later, give the same bytes."""
    other = make_folder(tmp_path / "again")
    os.utime(other / "lib/LICENSE.llama.cpp", (1, 1))
    pack(other, make_record(other), tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()


def rewrite(archive: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> None:
    """Write the archive anew with `change` applied to its entries."""
    with tarfile.open(archive) as tar:
        entries = [(entry, (tar.extractfile(entry) or io.BytesIO()).read() if entry.isreg() else b"") for entry in tar]
    change(entries)
    with tarfile.open(archive, "w") as tar:
        for entry, data in entries:
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    """One more entry."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, b"x" if kind == tarfile.REGTYPE else b""


def edit_record(edit: Callable[[Any], Any]) -> Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]:
    """A change of build.json alone."""

    def change(entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        data = json.loads(entries[0][1])
        edit(data)
        entries[0] = (entries[0][0], json.dumps(data).encode())

    return change


def member(path: str, data: bytes = b"x", mode: str = "644") -> dict[str, object]:
    """A member for a record."""
    return {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "mode": mode}


def relink(entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    """Lead every link elsewhere."""
    for info, _ in entries:
        if info.issym():
            info.linkname = "../../../etc/passwd"


FAULTS: dict[str, Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]] = {
    "one byte changed": lambda entries: entries.__setitem__(1, (entries[1][0], b"Licence\n")),
    "one file missing": lambda entries: entries.__delitem__(1),
    "one file more": lambda entries: entries.append(entry("lib/libextra.so")),
    "a file twice": lambda entries: entries.append(entries[1]),
    "record twice": lambda entries: entries.append(entries[0]),
    "record not first": lambda entries: entries.reverse(),
    "no record": lambda entries: entries.__delitem__(0),
    "empty": lambda entries: entries.clear(),
    "name with dots": lambda entries: entries.append(entry("../outside")),
    "absolute name": lambda entries: entries.append(entry("/tmp/outside")),
    "a link in place of a file": lambda entries: entries.__setitem__(
        1, entry("lib/LICENSE.llama.cpp", tarfile.SYMTYPE, "/etc/passwd")
    ),
    "a hard link in place of a file": lambda entries: entries.__setitem__(
        1, entry("lib/LICENSE.llama.cpp", tarfile.LNKTYPE, "build.json")
    ),
    "a device in place of a file": lambda entries: entries.__setitem__(
        1, entry("lib/LICENSE.llama.cpp", tarfile.CHRTYPE)
    ),
    "a link led elsewhere": relink,
    "record no JSON": lambda entries: entries.__setitem__(0, (entries[0][0], b"{")),
    "record too deep": lambda entries: entries.__setitem__(0, (entries[0][0], b"[" * 100_000)),
    "record a list": lambda entries: entries.__setitem__(0, (entries[0][0], b"[]")),
    "later schema": edit_record(lambda data: data.update(schema_version=2)),
    "no members": edit_record(lambda data: data.update(members=[])),
    "member out of the folder": edit_record(lambda data: data["members"].append(member("../outside"))),
    "member absolute": edit_record(lambda data: data["members"].append(member("/tmp/outside"))),
    "member with backslash": edit_record(lambda data: data["members"].append(member("lib\\x"))),
    "member is the record": edit_record(lambda data: data["members"].append(member("build.json"))),
    "member twice": edit_record(lambda data: data["members"].append(data["members"][0])),
    "member differs in case": edit_record(lambda data: data["members"].append(member("LIB/license.llama.cpp"))),
    "member setuid": edit_record(lambda data: data["members"][0].update(mode="4755")),
    "member of negative size": edit_record(lambda data: data["members"][0].update(size=-1)),
    "member too large": edit_record(lambda data: data["members"][0].update(size=2**60)),
    "link out of the folder": edit_record(lambda data: data["members"].append({"path": "lib/x", "link": "../x"})),
    "link to nothing": edit_record(lambda data: data["members"].append({"path": "lib/x", "link": "nothing"})),
    "no digest": edit_record(lambda data: data["members"][0].update(sha256="")),
    "control characters": edit_record(lambda data: data.update(backend="cpu\x1b[2J")),
    "no layout": edit_record(lambda data: data.update(layout=None)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_refused_and_leaves_nothing(tmp_path: Path, archive: Path, fault: str) -> None:
    """An archive that is not exactly what its record lists is refused; no folder, no file outside, no temporary one."""
    rewrite(archive, FAULTS[fault])
    target = tmp_path / "place" / "out"
    with pytest.raises(BuildInvalid):
        unpack(archive, target)
    assert list((tmp_path / "place").iterdir()) == []
    assert not (tmp_path / "outside").exists()
    assert not Path("/tmp/outside").exists()


def test_a_tar_that_is_cut_anywhere_is_refused(tmp_path: Path, archive: Path) -> None:
    """Cut at every block and in the middle of blocks: refused, but for the zero blocks at the end, which mean nothing."""
    data = archive.read_bytes()
    with tarfile.open(archive) as tar:
        end = max(entry.offset_data + -(-entry.size // 512) * 512 for entry in tar)
    for length in [*range(0, end, 512), *range(100, end, 1511)]:
        archive.write_bytes(data[:length])
        with pytest.raises(BuildInvalid):
            unpack(archive, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_random_damage_is_refused_or_harmless(tmp_path: Path, archive: Path) -> None:
    """Flipped bytes give an error of this project's own, or exactly the members that the record lists; never anything else."""
    data = archive.read_bytes()
    chance = random.Random(5)
    refused = 0
    for number in range(300):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        archive.write_bytes(damaged)
        target = tmp_path / f"out{number}"
        try:
            record = unpack(archive, target)
        except AgentError:
            refused += 1
            assert not target.exists()
        else:
            assert members_of(target) == record.members
    assert refused > 150


@pytest.mark.parametrize("fault", ["changed", "missing", "extra", "mode", "link", "record"])
def test_an_unpacked_build_that_was_changed_is_refused(tmp_path: Path, archive: Path, fault: str) -> None:
    """A folder is compared file by file before it is used."""
    root = tmp_path / "out"
    unpack(archive, root)
    path = root / "lib/LICENSE.llama.cpp"
    if fault == "changed":
        path.write_text("Licence\n", encoding="utf-8")
    elif fault == "missing":
        path.unlink()
    elif fault == "extra":
        (root / "lib/libggml-evil.so").write_bytes(b"x")
    elif fault == "mode":
        path.chmod(0o755)
    elif fault == "link":
        (root / "lib/libllama.so").unlink()
        (root / "lib/libllama.so").symlink_to("LICENSE.llama.cpp")
    else:
        (root / RECORD).write_text("{}", encoding="utf-8")
    with pytest.raises(BuildInvalid), lend_build(root):
        pytest.fail("a changed build was lent")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("os", "plan9", "built for os"), ("arch", "mips", "built for arch"), ("glibc", "9.99", "needs glibc 9.99")],
)
def test_a_build_for_another_machine_is_refused(
    tmp_path: Path, folder: Path, name: str, value: str, words: str
) -> None:
    """Other system, other processor, newer C library: said before anything is loaded."""
    archive = tmp_path / "other.tar"
    pack(folder, make_record(folder, system={**system_of_build([]), name: value}), archive)
    with pytest.raises(BuildInvalid, match=words), lend_build(archive):
        pytest.fail("a build for another machine was lent")


@pytest.mark.parametrize(
    ("backend", "names", "needed"),
    [
        ("cuda", ["libllama.so", "libggml-cpu.so"], {}),
        ("cpu", ["libllama.so"], {}),
        ("cpu", ["libggml-cpu.so"], {"libggml-cpu.so": ["libcudart.so.13"]}),
        ("cuda", ["libggml-cuda.so"], {"libggml-cuda.so": ["libvulkan.so.1"]}),
    ],
)
def test_a_backend_must_be_in_its_build_and_no_other(
    backend: str, names: list[str], needed: dict[str, list[str]]
) -> None:
    """A CUDA build without ggml-cuda, or a CPU build that needs CUDA, is no such build."""
    with pytest.raises(BuildInvalid):
        check_backend(backend, names, needed)


def test_special_files_and_outward_links_are_not_packed(tmp_path: Path) -> None:
    """What an archive could not carry safely is refused when it is made."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BuildInvalid):
        members_of(tmp_path)
    (tmp_path / "pipe").unlink()
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(BuildInvalid):
        members_of(tmp_path)
