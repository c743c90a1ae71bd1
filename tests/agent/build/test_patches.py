"""The patch queue: its digest and numbers, whether it applies, and the guards of upstream that it removes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from agent.build.patches.apply import check_applies
from agent.build.patches.queue import check_names, queue_digest, read_queue
from agent.build.patches.removed import GUARDS as GUARDS_KNOWN
from agent.build.patches.removed import check_removed, read_reviewed
from agent.errors import PatchesUnreadable
from tests.agent.build.kit import skippy
from tests.agent.store.privilege import closed

FILE = "src/guards.cpp"
SOURCE = """\
// sync first: synchronize();
void encode(context * ctx, int n, int size) {
    ctx->synchronize();
    GGML_ASSERT(n > 0);
    static_assert(sizeof(int) == 4);
    if (n >= size) {
        return;
    }
    n = std::clamp(n, 0, size);
    switch (ctx->arch) {
        case LLM_ARCH_QWEN3NEXT:
            reserve(ctx, n * 40);
            break;
        default:
            ggml_backend_register(ctx->reg);
    }
    int plain = n->value << 2;
}
static const names = {
    { LLM_ARCH_LLAMA, "llama" },
};
"""
GUARDS = {
    "    ctx->synchronize();\n": "PL020",
    "    GGML_ASSERT(n > 0);\n": "PL021",
    "    static_assert(sizeof(int) == 4);\n": "PL021",
    "    if (n >= size) {\n        return;\n    }\n": "PL022",
    "    n = std::clamp(n, 0, size);\n": "PL022",
    "        case LLM_ARCH_QWEN3NEXT:\n            reserve(ctx, n * 40);\n            break;\n": "PL023",
    "            ggml_backend_register(ctx->reg);\n": "PL023",
    '    { LLM_ARCH_LLAMA, "llama" },\n': "PL023",
}


class Queue:
    """A repository of real git whose commits become the patches."""

    def __init__(self, root: Path) -> None:
        self.tree, self.folder = root / "llama.cpp", root / "patches"
        self.tree.mkdir()
        self.folder.mkdir()
        self._git("init", "-q")
        self.write(SOURCE)
        self._git("add", ".")
        self._git("commit", "-q", "-m", "upstream")
        self.base = self.head()

    def write(self, text: str, name: str = FILE) -> None:
        """Write a file of the tree."""
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def commit(self, text: str, name: str = FILE) -> None:
        """One more patch of the queue."""
        self.write(text, name)
        self._git("add", "-A")
        self._git("commit", "-q", "-m", "change")

    def head(self) -> str:
        """The last commit."""
        return self._git("rev-parse", "HEAD").strip()

    def export(self) -> Path:
        """Write the queue as git does, and go back to upstream."""
        self._git("format-patch", "-q", "-o", str(self.folder), self.base)
        self._git("checkout", "-q", self.base)
        return self.folder

    def _git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=self.tree, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    """An upstream with one file and no patches."""
    return Queue(tmp_path)


def removed_ids(folder: Path) -> list[str]:
    """Ids of the findings about removed lines."""
    return [finding.id for finding in check_removed(read_queue(folder))]


@pytest.mark.parametrize("lines", GUARDS)
def test_each_kind_of_guard_is_found_when_removed(queue: Queue, lines: str) -> None:
    """A synchronisation, assertion, bounds check or registry entry that goes is a finding at its line."""
    queue.commit(SOURCE.replace(lines, ""))
    findings = list(check_removed(read_queue(queue.export())))
    assert [finding.id for finding in findings] == [GUARDS[lines]]
    first = lines.splitlines()[0]
    at = SOURCE.splitlines().index(first) + 1
    assert f"{FILE}:{at} is removed: {first.strip()}" in findings[0].message
    patch = queue.folder / findings[0].file
    assert patch.read_text(encoding="utf-8").splitlines()[findings[0].line - 1] == f"-{first}"


@pytest.mark.parametrize(
    "change",
    [
        ("// sync first: synchronize();\n", ""),
        ("    int plain = n->value << 2;\n", ""),
        ("    ctx->synchronize();\n    GGML_ASSERT(n > 0);\n", "    GGML_ASSERT(n > 0);\n    ctx->synchronize();\n"),
        ("    GGML_ASSERT(n > 0);\n", "      GGML_ASSERT(n   > 0);\n"),
        ("            break;\n", "            break;\n        case LLM_ARCH_NEW:\n            break;\n"),
    ],
)
def test_comments_moves_and_additions_are_no_findings(queue: Queue, change: tuple[str, str]) -> None:
    """Only what is lost for good is named: no comments, no plain code, nothing that moved or was only indented."""
    queue.commit(SOURCE.replace(*change))
    assert removed_ids(queue.export()) == []


def test_a_guard_that_is_copied_once_and_removed_twice_is_found(queue: Queue) -> None:
    """As many lines must come back as go."""
    double = SOURCE.replace("    ctx->synchronize();\n", "    ctx->synchronize();\n" * 2)
    queue.commit(double)
    queue.commit(SOURCE.replace("    ctx->synchronize();\n", ""))
    assert removed_ids(queue.export()) == ["PL020"]


def test_what_the_queue_itself_added_is_not_upstreams(queue: Queue) -> None:
    """A later patch may take back what an earlier one brought."""
    queue.commit(SOURCE.replace("    int plain", "    GGML_ASSERT(false);\n    int plain"))
    queue.commit(SOURCE)
    assert removed_ids(queue.export()) == []


def test_a_deleted_file_is_named_with_its_guards(queue: Queue) -> None:
    """Deleting a file removes every guard in it."""
    (queue.tree / FILE).unlink()
    queue.commit("x\n", "docs/new.md")
    ids = removed_ids(queue.export())
    assert set(ids) == {"PL020", "PL021", "PL022", "PL023", "PL024"}


def test_reviewed_lines_pass_until_they_change(queue: Queue) -> None:
    """A line listed with a reason is passed over; an entry that matches nothing is named; one without a reason is refused."""
    queue.commit(SOURCE.replace("    ctx->synchronize();\n", ""))
    folder = queue.export()
    ran = skippy("lint-patches", "--patches", folder, "--json")
    assert ran.code == 1
    mark = ran.json["findings"][0]["fix"].split("`")[1]
    listed = folder / "reviewed.txt"
    listed.write_text(f"# seen\n{mark} copies are waited for in decode\n", encoding="utf-8")
    assert skippy("lint-patches", "--patches", folder).code == 0
    stale = f"{mark[:-1]}{'0' if mark[-1] != '0' else '1'}"
    listed.write_text(f"{stale} reason\n", encoding="utf-8")
    found = {finding.id for finding in check_removed(read_queue(folder), read_reviewed(listed))}
    assert found == {"PL020", "PL030"}
    listed.write_text(f"{mark}\n", encoding="utf-8")
    assert skippy("lint-patches", "--patches", folder).code == 2


def test_a_queue_that_applies_has_no_finding(queue: Queue) -> None:
    """Patches that build on each other, make a file and delete one apply in order; the checkout stays as it is."""
    queue.commit(SOURCE.replace("int plain", "int first"))
    queue.commit(SOURCE.replace("int plain", "int second"))
    queue.commit("int x;\n", "src/new.cpp")
    folder = queue.export()
    assert check_applies(read_queue(folder), queue.tree) == ()
    assert (queue.tree / FILE).read_text(encoding="utf-8") == SOURCE
    assert not (queue.tree / "src/new.cpp").exists()


def test_the_hunk_that_does_not_apply_is_named(queue: Queue) -> None:
    """Upstream changed under the second of two hunks: patch, file, hunk and line are in the finding, the rest is not tried."""
    changed = SOURCE.replace("// sync first", "// wait first").replace('"llama" }', '"llama2" }')
    queue.commit(changed)
    queue.commit(changed + "// end\n")
    folder = queue.export()
    queue.write(SOURCE.replace('"llama" }', '"alpaca" }'))
    findings = check_applies(read_queue(folder), queue.tree)
    assert [finding.id for finding in findings] == ["PL010", "PL011"]
    assert f"{FILE} (hunk 2 of 2" in findings[0].message
    patch = (folder / findings[0].file).read_text(encoding="utf-8").splitlines()
    assert patch[findings[0].line - 1].startswith("@@")
    assert '-    { LLM_ARCH_LLAMA, "llama" },' in patch[findings[0].line :]


def test_an_unknown_file_and_a_reordered_queue_do_not_apply(queue: Queue) -> None:
    """A patch to a file that is not there, and patches in the wrong order, are findings."""
    queue.commit(SOURCE.replace("int plain", "int first"))
    queue.commit(SOURCE.replace("int plain", "int second"))
    folder = queue.export()
    first, second = sorted(folder.iterdir())
    first.rename(folder / "0003-late.patch")
    assert check_applies(read_queue(folder), queue.tree)[0].file == second.name
    (queue.tree / FILE).unlink()
    assert check_applies(read_queue(folder), queue.tree)[0].id == "PL010"


@pytest.mark.parametrize("name", ["../outside.txt", "/absolute.txt", ".git/hooks/post-checkout"])
def test_a_patch_cannot_write_outside(tmp_path: Path, queue: Queue, name: str) -> None:
    """A patch with a name that leads out of the tree does not apply, and nothing is written there."""
    text = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
    (queue.folder / "0001-evil.patch").write_text(text, encoding="utf-8")
    findings = check_applies(read_queue(queue.folder), queue.tree)
    assert [finding.id for finding in findings] == ["PL010"]
    assert not (tmp_path / "outside.txt").exists()


def test_digest_is_the_products(queue: Queue) -> None:
    """SHA-256 over name and sha256 of each patch, a line each, in the order of the names."""
    for name in ("0002-b.patch", "0001-a.patch", "core/0001-c.patch"):
        path = queue.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name, encoding="utf-8")
    names = ["0001-a.patch", "0002-b.patch", "core/0001-c.patch"]
    text = "".join(f"{name}\n{hashlib.sha256(name.encode()).hexdigest()}\n" for name in names)
    assert queue_digest(read_queue(queue.folder)) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["0001-a", "0002-b", "0003-c"], []),
        (["0001-a", "0003-c"], ["PL003"]),
        (["0001-a", "0006-c"], ["PL003"]),
        (["0001-a", "0001-b"], ["PL002"]),
        (["core/0001-a", "models/0001-b"], []),
        (["a"], ["PL006"]),
        ([], ["PL001"]),
    ],
)
def test_numbers_that_repeat_or_are_missing_are_named(queue: Queue, names: list[str], expected: list[str]) -> None:
    """Numbers count in each folder of their own; an empty queue is an error."""
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    for name in names:
        path = queue.folder / f"{name}.patch"
        path.parent.mkdir(exist_ok=True)
        path.write_text(diff, encoding="utf-8")
    assert [finding.id for finding in check_names(read_queue(queue.folder))] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "PL004"),
        ("Subject: nothing\n\nwords\n-- \n2.39\n", "PL004"),
        ("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n-a\n+b\n", "PL005"),
        ("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\nwhat\n", "PL005"),
    ],
)
def test_files_that_are_no_patches_are_named(queue: Queue, text: str, expected: str) -> None:
    """An empty file, a mail without a diff, and a diff that was cut are errors."""
    (queue.folder / "0001-a.patch").write_text(text, encoding="utf-8")
    assert [finding.id for finding in check_names(read_queue(queue.folder))] == [expected]


def test_command_reports_all_at_once(queue: Queue) -> None:
    """One run names the removed guard and the conflict; the JSON has the queue as pin.json wants it."""
    queue.commit(SOURCE.replace("    ctx->synchronize();\n", ""))
    folder = queue.export()
    queue.write(SOURCE.replace("synchronize", "wait"))
    ran = skippy("lint-patches", "--patches", folder, "--llama-src", queue.tree, "--json")
    assert (ran.code, ran.json["ok"]) == (1, False)
    assert {finding["id"] for finding in ran.json["findings"]} == {"PL010", "PL020"}
    assert ran.json["digest"] == queue_digest(read_queue(folder))
    assert set(ran.json["patches"][0]) == {"name", "sha256"}


def test_folders_that_are_not_there_are_refused(tmp_path: Path, queue: Queue) -> None:
    """A wrong path is exit code 2, not an empty and therefore clean queue."""
    with pytest.raises(PatchesUnreadable):
        read_queue(tmp_path / "nowhere")
    assert skippy("lint-patches", "--patches", tmp_path / "nowhere").code == 2
    (queue.folder / "0001-a.patch").write_text("x", encoding="utf-8")
    assert skippy("lint-patches", "--patches", queue.folder, "--llama-src", tmp_path / "nowhere").code == 2


def test_a_closed_folder_is_not_an_empty_one(queue: Queue) -> None:
    """A queue without the patches of a folder that may not be read has another digest, so it is refused."""
    queue.commit(SOURCE.replace("int plain", "int first"))
    folder = queue.export()
    for place in (folder / "models", folder):
        with closed(place), pytest.raises(PatchesUnreadable, match="cannot be looked into"):
            read_queue(folder)
    with closed(folder) as shut:
        assert skippy("lint-patches", "--patches", shut / "core").code == 2
        assert skippy("lint-patches", "--patches", queue.tree, "--llama-src", shut / "x").code == 2


def test_a_patch_that_is_a_folder_is_refused(queue: Queue) -> None:
    """Neither passed over nor looked into."""
    (queue.folder / "0001-a.patch").mkdir()
    with pytest.raises(PatchesUnreadable, match="not a patch"):
        read_queue(queue.folder)


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "binary", "missing"])
def test_a_list_of_reviewed_lines_that_is_no_text_is_refused_at_once(queue: Queue, tmp_path: Path, kind: str) -> None:
    """A device without an end and a pipe without a writer neither fill the memory nor wait."""
    queue.commit(SOURCE.replace("int plain", "int first"))
    path = tmp_path / "list"
    if kind == "device":
        path = Path("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe")
    ran = skippy("lint-patches", "--patches", queue.export(), "--reviewed", path)
    assert ran.code == 2
    assert str(path) in ran.err


@pytest.mark.parametrize("text", ["if(", "register_", "sync_", "case LLM_A ", "{ LLM_", "if (x ", " "])
def test_a_line_of_any_length_is_looked_at_quickly(text: str) -> None:
    """A patch with one line of 20,000 characters costs about a second at most; the search for guards once took a minute."""
    since = time.process_time()
    for guard in GUARDS_KNOWN:
        guard.stands_in(text * (20_000 // len(text)))
    assert time.process_time() - since < 5


@pytest.mark.parametrize("before", [0, 1000, 1020, 5000])
def test_a_guard_far_to_the_right_is_found(queue: Queue, before: int) -> None:
    """Also where it begins at the edge of what is looked at once."""
    line = "    int x = 1;" + " " * before + "ctx->synchronize(); if (n >= size) { return; }\n"
    queue.write(SOURCE + line)
    queue.commit(SOURCE + line)
    queue.base = queue.head()
    queue.commit(SOURCE)
    assert removed_ids(queue.export()) == ["PL020"]
