"""What binaries accept is read from their own help, and what no adapter knows is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import BinaryMissing, BinaryUnknown, BinaryUnusable
from agent.prebuilt import adapter
from agent.prebuilt.adapter import Dialect, parse_commands, parse_flags, probe
from agent.prebuilt.binaries import CORRECTNESS, PACKAGE, SERVER, find_binaries
from tests.agent.prebuilt.conftest import write_standin

SHORT = """\
Validate staged llama execution against full-model execution

Usage: skippy-correctness <COMMAND>

Commands:
  single-step
  split-scan       Every cut
  help             Print this message or the help of the given subcommand(s)

Options:
  -h, --help  Print help
"""
LONG = """\
Usage: skippy-correctness single-step [OPTIONS] --model <MODEL>

Options:
      --model <MODEL>
          The model [aliases: --model-path]

      --flash-attn <FLASH_ATTN>
          [default: auto] [possible values: auto, disabled, enabled]

  -v, --child-logs
  -h, --help
          Print help, see --verbose-help
"""


def script(folder: Path, body: str, name: str = CORRECTNESS) -> Path:
    """A binary that is a shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return folder


def test_commands_and_flags_of_a_help() -> None:
    """The short and the long form of clap's help are both understood; prose that mentions a flag is none."""
    assert parse_commands(SHORT) == {"single-step", "split-scan", "help"}
    assert parse_flags(LONG) == {"--model", "--flash-attn", "--child-logs", "--help"}
    assert parse_flags("Usage: x preflight [OPTIONS] --stages <N> <PACKAGE>\n") == {"--stages"}


def test_the_first_dialect(dialect: Dialect) -> None:
    """Binaries with a dtype-matrix can choose the type of the wire."""
    assert dialect.name == "wire-dtypes"
    assert dialect.wires
    assert all(dialect.offers(CORRECTNESS, name) for name in ("single-step", "dtype-matrix", "state-handoff"))
    assert dialect.offers(PACKAGE, "preflight")


def test_the_later_dialect(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Binaries without one always send f32, and are not asked for what they do not have."""
    monkeypatch.setenv("STANDIN_RELEASE", "raw-f32")
    found = probe(find_binaries(bin_dir))
    assert (found.name, found.wires, found.offers(CORRECTNESS, "dtype-matrix")) == ("raw-f32", False, False)
    words = found.arguments(SERVER, "serve-binary", {"--config": "c"}, {"--activation-wire-dtype": "f32"})
    assert words == ["serve-binary", "--config", "c"]


@pytest.mark.parametrize(
    ("release", "words"), [("unknown", "has no chain, single-step"), ("half", "has a dtype-matrix and no")]
)
def test_an_unknown_release_is_refused(
    release: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that are missing, or that do not belong together, are named; nothing is run with guessed flags."""
    monkeypatch.setenv("STANDIN_RELEASE", release)
    write_standin(tmp_path, CORRECTNESS)
    with pytest.raises(BinaryUnknown, match=words):
        probe(find_binaries(tmp_path))


def test_a_flag_that_is_needed_and_not_there(dialect: Dialect) -> None:
    """The flag is named; an optional one is left out; a switch has no value."""
    with pytest.raises(BinaryUnknown, match=r"no --no-such-flag"):
        dialect.arguments(CORRECTNESS, "chain", {"--no-such-flag": 1})
    with pytest.raises(BinaryUnknown, match="no command 'verify'"):
        dialect.arguments(CORRECTNESS, "verify", {})
    words = dialect.arguments(CORRECTNESS, "chain", {"--allow-mismatch": True, "--child-logs": False}, {"--none": 1})
    assert words == ["chain", "--allow-mismatch"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'libcudart.so.13: cannot open shared object file' >&2; exit 127", "exit code 127: libcudart"),
        ("kill -ILL $$", "SIGILL"),
        ("kill -KILL $$", "killed at its start"),
        ("exit 0", "prints nothing"),
        ("sleep 60", "does not end"),
    ],
)
def test_a_binary_that_does_not_run_here(
    body: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way in which a binary may refuse to start is told before any check runs, and blames the machine."""
    if "sleep" in body:
        monkeypatch.setattr(adapter, "_HELP_SECONDS", 1)
    with pytest.raises(BinaryUnusable, match=words):
        probe(find_binaries(script(tmp_path / "bin", body)))


def test_a_binary_of_another_processor(tmp_path: Path) -> None:
    """What the system cannot execute at all is named, too."""
    path = tmp_path / CORRECTNESS
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(64))
    path.chmod(0o755)
    with pytest.raises(BinaryUnusable, match="cannot be executed here"):
        probe(find_binaries(tmp_path))


def test_folders_of_binaries(bin_dir: Path, tmp_path: Path) -> None:
    """They may lie in `bin` of a build; one that is missing is told when it is needed; a folder without any is refused."""
    assert find_binaries(bin_dir.parent).digests == find_binaries(bin_dir).digests
    (bin_dir / SERVER).unlink()
    with pytest.raises(BinaryMissing, match=f"{SERVER} is neither in"):
        find_binaries(bin_dir).need(SERVER)
    with pytest.raises(BinaryMissing, match="holds none of"):
        find_binaries(tmp_path / "nothing")


def test_a_lost_mode(bin_dir: Path) -> None:
    """A binary that lost its executable bit is named, and not made executable behind the user's back."""
    (bin_dir / PACKAGE).chmod(0o644)
    with pytest.raises(BinaryMissing, match=r"chmod \+x"):
        find_binaries(bin_dir)
