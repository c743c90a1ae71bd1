"""The commands, as a user and as a workflow call them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matrixgen import errors
from matrixgen.cli import group
from matrixgen.plan import read_plan

ROOT = Path(__file__).parents[2]
FIXED = Path(__file__).parent / "golden" / "manifests"
COMMANDS = tuple(group.COMMANDS)
Run = Callable[..., Any]
Edit = Callable[[str, Callable[[Any], Any]], Path]


def test_emit_prints_one_compact_line(run: Run) -> None:
    """Standard output is the matrix and nothing else; remarks go to standard error."""
    result = run("emit", "--tier", "1")
    assert result.code == 0
    assert result.out.count("\n") == 1
    ids = [entry["id"] for entry in json.loads(result.out)["include"]]
    assert "mamba@cpu" in ids
    assert "mamba2" in result.err


def test_emit_writes_the_outputs_of_a_workflow(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With GITHUB_OUTPUT set, all five outputs are appended in here-document form, and the plan has the same digest."""
    target = tmp_path / "out"
    target.write_text("before=1\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_OUTPUT", str(target))
    plan_path = tmp_path / "plan.json"
    result = run("emit", "--tier", "1", "--plan", str(plan_path))
    assert result.code == 0
    text = target.read_text(encoding="utf-8")
    assert text.startswith("before=1\nmatrix<<EOF_")
    for name in ("matrix", "builds", "has_legs", "count", "plan_digest"):
        assert text.count(f"\n{name}<<EOF_") == 1
    plan = read_plan(plan_path)
    assert f"\n{plan.digest}\n" in text
    assert f"\n{len(plan.legs)}\n" in text
    assert result.out.strip() in text


def test_empty_selection(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A5: an error of its own, which writes nothing; with --allow-empty, count 0 and has_legs false."""
    target = tmp_path / "out"
    monkeypatch.setenv("GITHUB_OUTPUT", str(target))
    result = run("emit", "--tier", "9")
    assert (result.code, result.out) == (3, "")
    assert not target.exists()
    result = run("emit", "--tier", "9", "--allow-empty")
    assert (result.code, result.out) == (0, '{"include":[]}\n')
    text = target.read_text(encoding="utf-8")
    assert "\nfalse\n" in text
    assert "\n0\n" in text
    assert "null" not in text


@pytest.mark.parametrize("output_format", ["json", "github", "table", "names"])
def test_formats(run: Run, output_format: str) -> None:
    """Each format names the leg; none has colours when it is not a terminal."""
    result = run("emit", "--family", "mamba", "--format", output_format)
    assert result.code == 0
    assert "mamba" in result.out
    assert "\x1b" not in result.out
    if output_format == "names":
        assert result.out == "mamba@cpu\n"


def test_emit_is_byte_stable(run: Run) -> None:
    """The same input gives the same bytes."""
    first, second = (run("emit", "--event", "release").out for _ in range(2))
    assert first == second


def test_plan_prints_or_writes(run: Run, tmp_path: Path) -> None:
    """Without -o the plan is printed; with it, it is a file with the same content."""
    printed = run("plan", "--tier", "2")
    path = tmp_path / "plan.json"
    written = run("plan", "--tier", "2", "-o", str(path))
    assert printed.code == written.code == 0
    assert path.read_text(encoding="utf-8") == printed.out
    assert json.loads(printed.out)["digest"] in written.out


def test_unknown_family_names_the_nearest(run: Run) -> None:
    """A typing error is answered with the nearest names."""
    for command in (("emit", "--family", "mamab"), ("move", "mamab", "--tier", "2")):
        result = run(*command)
        assert result.code == 2
        assert "did you mean mamba" in result.err


def test_validate_reports_everything(run: Run, edit: Edit) -> None:
    """All faults at once, each with file, line, id, pointer and fix; --json has the same."""

    def spoil(data: Any) -> None:
        data["families"][0]["tier"] = 12
        data["families"][1]["shape"] = "round"

    root = edit("families", spoil)
    edit("runners", lambda data: data.update(runners=None))
    result = run("validate", "--manifests", str(root))
    assert result.code == 1
    assert result.out.count("MG010") == 3
    assert "families.json:1: error MG010 /families/0/tier" in result.out
    assert result.out.count("fix: ") == 3
    assert result.out.endswith("3 errors, 0 warnings\n")
    as_json = run("validate", "--manifests", str(root), "--json")
    assert as_json.code == 1
    assert [f["pointer"] for f in json.loads(as_json.out)["findings"]] == [
        "/families/0/tier", "/families/1/shape", "/runners",
    ]  # fmt: skip


def test_validate_of_the_shipped_manifest(run: Run) -> None:
    """What is shipped is good, and the warnings are about pins only."""
    result = run("validate", "--json")
    assert result.code == 0
    data = json.loads(result.out)
    assert data["ok"] is True
    assert {finding["id"] for finding in data["findings"]} <= {"MG030"}


def test_other_commands_show_all_errors_too(run: Run, edit: Edit) -> None:
    """emit on a wrong manifest says what is wrong, on standard error, with exit code 1; warnings are counted only."""

    def spoil(data: Any) -> None:
        next(row for row in data["families"] if row["family"] == "glm47-flash")["arch"] = "chatglm"

    result = run("emit", "--manifests", str(edit("families", spoil)))
    assert (result.code, result.out) == (1, "")
    assert "MG012" in result.err
    assert "MG030" not in result.err
    assert re.search(r"run `matrixgen validate` after each fix; it lists the warnings, too \(\d+\)", result.err)


def test_move(run: Run, folder: Path) -> None:
    """A move says from where to where; a second one says that nothing changed; null is no tier."""
    arguments = ("move", "mamba", "--manifests", str(folder), "--tier")
    assert "mamba: tier 1 -> 2" in run(*arguments, "2").out
    assert "nothing changed" in run(*arguments, "2").out
    assert "mamba: tier 2 -> null" in run(*arguments, "null").out
    assert run(*arguments, "4").code == 2


def test_a_move_that_breaks_a_rule_changes_nothing(run: Run, folder: Path) -> None:
    """Making a tombstone of an architecture that another row keeps is refused with the rule's id."""
    path = folder / "families.json"
    text = path.read_text(encoding="utf-8").replace('"arch": "mamba2"', '"arch": "mamba"')
    path.write_text(text, encoding="utf-8")
    result = run("move", "mamba", "--tier", "3", "--manifests", str(folder))
    assert result.code == 1
    assert "MG012" in result.err
    assert path.read_text(encoding="utf-8") == text


def test_fmt(run: Run, folder: Path) -> None:
    """--check only looks; without it the file becomes canonical; a second run has nothing to do."""
    path = folder / "families.json"
    canonical = path.read_bytes()
    path.write_text(json.dumps(json.loads(canonical)), encoding="utf-8")
    assert run("fmt", "--check", "--manifests", str(folder)).code == 1
    assert path.read_bytes() != canonical
    assert run("fmt", "--manifests", str(folder)).code == 0
    assert path.read_bytes() == canonical
    assert run("fmt", "--check", "--manifests", str(folder)).code == 0


def test_keys_why(run: Run) -> None:
    """The parts of a key are printed only when asked for."""
    plain = run("keys", "--family", "mamba")
    why = run("keys", "--family", "mamba", "--why")
    assert plain.code == why.code == 0
    assert "toolchain" not in plain.out
    assert "toolchain" in why.out
    assert set(plain.out.splitlines()) < set(why.out.splitlines())


def test_schema(run: Run) -> None:
    """The list names all files; each name prints a schema."""
    names = [line.split()[0] for line in run("schema").out.splitlines()]
    assert names == ["families", "pin", "batteries", "runners", "caches", "quarantine", "plan"]
    for name in names:
        assert json.loads(run("schema", name).out)["title"] == f"{name}.json"
    assert run("schema", "none").code == 2


BAD_FILES: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "number": b"1",
    "text": b'"x"',
    "not json": b"families:\n- mamba\n",
    "cut": b'{"schema_version": 1, "families": [',
    "null families": b'{"schema_version": 1, "families": null}',
    "families of text": b'{"schema_version": 1, "families": ["mamba"]}',
    "families of null": b'{"schema_version": 1, "families": [null, null]}',
    "boolean version": b'{"schema_version": true, "families": []}',
    "huge number": b'{"schema_version": ' + b"9" * 6000 + b', "families": []}',
    "huge exponent": b'{"schema_version": 1e999999, "families": []}',
    "deep list": b"[" * 200_000,
    "deep object": b'{"a":' * 200_000,
    "deep but closed": b'{"schema_version": 1, "families": ' + b"[" * 400 + b"]" * 400 + b"}",
    "duplicate": b'{"schema_version": 1, "schema_version": 1, "families": []}',
    "latin-1": '{"é": 1}'.encode("latin-1"),
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"schema_version": 1, "families": []}',
    "null bytes": b"\x00" * 100,
    "control": b'{"schema_version": 1, "families": [], "\\u001b[31m": 1}',
    "surrogate": b'{"schema_version": 1, "families": [], "\\ud800": "\\udfff"}',
    "expression": b'{"schema_version": 1, "families": [{"family": "${{ github.token }}"}]}',
    "command": b'{"schema_version": 1, "families": [{"family": "\\n::set-output name=x::y"}]}',
    "html": b"<!doctype html><title>404</title>",
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize("file", ["families", "runners"])
def test_bad_files_are_findings(run: Run, folder: Path, kind: str, file: str) -> None:
    """Whatever is in a file: exit code 1, one line a finding, no traceback, nothing on standard output of emit."""
    (folder / f"{file}.json").write_bytes(BAD_FILES[kind])
    emitted = run("emit", "--manifests", str(folder))
    validated = run("validate", "--manifests", str(folder))
    assert (emitted.code, emitted.out, validated.code) == (1, "", 1)
    for text in (emitted.err, validated.out):
        assert f"{file}.json" in text
        assert "fix: " in text
        assert "\x1b" not in text
        assert "::set-output" not in [line[:12] for line in text.splitlines()]


@pytest.mark.parametrize("command", ["emit", "plan", "validate", "fmt", "keys", "move"])
def test_missing_folders_are_messages(run: Run, tmp_path: Path, command: str) -> None:
    """A folder that is not there, an empty one, a file, and a folder in place of the file."""
    as_file = tmp_path / "file"
    as_file.write_text("{}", encoding="utf-8")
    nested = tmp_path / "nested"
    (nested / "families.json").mkdir(parents=True)
    extra = ("mamba", "--tier", "2") if command == "move" else ()
    for path in (tmp_path / "none", tmp_path, as_file, nested):
        result = run(command, *extra, "--manifests", str(path))
        assert result.code in (1, 2)
        assert "families.json" in result.err + result.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("emit", "--plan", "none/plan.json"),
        ("emit", "--plan", "."),
        ("plan", "-o", "none/plan.json"),
        ("plan", "-o", "."),
    ],
)
def test_unwritable_targets_are_messages(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """A plan that cannot be written is exit code 5, and no half of it is left."""
    result = run(*arguments[:-1], str(tmp_path / arguments[-1]), "--manifests", str(FIXED))
    assert result.code == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_read_only_folder(run: Run, folder: Path) -> None:
    """A move in a folder that may not be written is a message, and the file stays."""
    before = (folder / "families.json").read_bytes()
    folder.chmod(0o555)
    try:
        result = run("move", "mamba", "--tier", "2", "--manifests", str(folder))
    finally:
        folder.chmod(0o755)
    assert result.code == 5
    assert (folder / "families.json").read_bytes() == before


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    words=st.lists(
        st.sampled_from(
            [*COMMANDS, "--tier", "1", "-1", "99999999999999999999", "--family", "*", "[", "[!", "mamba", "${{ x }}",
             "$(id)", "\x1b[31m", "--event", "nightly", "--backend", "cuda", "--subject", "twin", "--format", "names",
             "--json", "--why", "--check", "--allow-empty", "", "é", "a\nb", "-h", "--", "--version", "--pack", "--chunked",
             "--chunk", "chunk-001", "--timings", "--only-missing", "--checkout", "--telemetry", "--llama-src", "--upstream",
             "--changed-from", "HEAD", "/dev/null", "/", "\0", "--arch", "--shape", "dense", "--repo", "a/b", "--release-notes"]
        ),
        max_size=6,
    )
)  # fmt: skip
def test_any_arguments_end_in_a_documented_code(run: Run, folder: Path, words: list[str]) -> None:
    """No words on the command line give a traceback or an unknown exit code."""
    manifests = [] if not words or words[0] == "schema" else ["--manifests", str(folder)]
    result = run(*words, *manifests)
    assert result.code in range(6)
    assert "\x1b" not in result.out + result.err


def test_control_characters_are_not_echoed(run: Run) -> None:
    """What a message repeats cannot colour or command the terminal."""
    for option in ("--family", "--event", "--backend", "--subject"):
        result = run("emit", option, "\x1b[31mred\n::error::x")
        assert result.code == 2
        assert "\x1b" not in result.err
        assert not [line for line in result.err.splitlines() if line.startswith("::")]


def test_exit_codes_are_documented() -> None:
    """Every class of error has a code that the documentation lists."""
    text = (ROOT / "docs" / "matrixgen.md").read_text(encoding="utf-8")
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.MatrixgenError)]
    assert len(classes) > 10
    for code in {c.exit_code for c in classes}:
        assert f"| {code} |" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_a_place_in_the_docs(run: Run, command: str) -> None:
    """`--help` answers, and docs/matrixgen.md has a section for each command."""
    result = run(command, "--help")
    assert result.code == 0
    assert result.out.startswith("Usage: matrixgen")
    assert f"## `{command}`" in (ROOT / "docs" / "matrixgen.md").read_text(encoding="utf-8")
    assert set(group.cli.commands) == set(COMMANDS)
    assert len(COMMANDS) == 16


def fresh(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    """A new process: `matrixgen` with arguments, or a piece of Python."""
    command = [sys.executable, *(["-c", code] if code else ["-m", "matrixgen", *arguments])]
    environment = {key: value for key, value in os.environ.items() if key != "GITHUB_OUTPUT"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_as_a_process() -> None:
    """The module runs, and its output is the matrix."""
    done = fresh("emit", "--family", "mamba")
    assert done.returncode == 0
    assert json.loads(done.stdout)["include"][0]["id"] == "mamba@cpu"
    assert fresh("emit", "--tier", "9").returncode == 3


def test_happy_path_loads_no_heavy_library() -> None:
    """Speed: a good manifest is planned without jsonschema, and without what only errors and writers need."""
    done = fresh(
        code="import sys; from matrixgen.cli.group import run; run(['emit', '--tier', '1']);"
        "bad = {'jsonschema', 'yaml', 'tempfile', 'difflib', 'asyncio', 'subprocess', 'numpy'} & set(sys.modules);"
        "sys.exit(f'loaded: {bad}' if bad else 0)"
    )
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_quiet() -> None:
    """`matrixgen plan | head -1` ends without noise."""
    with subprocess.Popen(
        [sys.executable, "-m", "matrixgen", "plan", "--event", "manual-full"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        noise = process.stderr.read()
    assert "Traceback" not in noise
    assert "BrokenPipe" not in noise
