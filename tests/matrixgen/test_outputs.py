"""GITHUB_OUTPUT: whatever the value holds, the runner reads back exactly that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixgen import outputs
from matrixgen.errors import CannotWrite, InvalidValue

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,10}", fullmatch=True)
VALUES = st.text(alphabet=st.sampled_from("ab<=\n\r:\"'{}%EOF_ "), max_size=60)


def read_like_the_runner(text: str) -> dict[str, str]:
    """The runner's rule: `name<<delimiter`, lines up to the delimiter alone on a line; else `name=value`."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    assert lines.pop() == "", "the file must end with a line feed"
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if not line:
            continue
        if match := re.fullmatch(r"([^=<]+)<<(.+)", line):
            end = lines.index(match[2], position)
            found[match[1]] = "\n".join(lines[position:end])
            position = end + 1
        else:
            name, _, value = line.partition("=")
            found[name] = value
    return found


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_values_survive(values: dict[str, str]) -> None:
    """A10, A11: line feeds, `<<`, `=`, quotes, commands: all come back unchanged."""
    assert read_like_the_runner(outputs.frame(values)) == values


def test_delimiter_is_proven_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delimiter that is in the value is drawn again."""
    draws = iter([b"\x00" * 16, b"\x01" * 16])
    monkeypatch.setattr("matrixgen.outputs.os.urandom", lambda _size: next(draws))
    value = f"x\nEOF_{'00' * 16}\ny"
    assert read_like_the_runner(outputs.frame({"a": value})) == {"a": value}


def test_delimiters_are_random() -> None:
    """Nobody can write a value that closes the next block."""
    first, second = (re.findall(r"<<(.*)", outputs.frame({"a": "x"}))[0] for _ in range(2))
    assert first != second
    assert len(first) >= 32


@pytest.mark.parametrize("name", ["", " ", "a b", "a=b", "a<<b", "1a", "a\nb", "-a"])
def test_bad_names_are_refused_before_a_byte(tmp_path: Path, name: str) -> None:
    """A13: an empty or strange name writes nothing, not even the good outputs before it."""
    path = tmp_path / "out"
    path.write_text("kept=1\n", encoding="utf-8")
    with pytest.raises(InvalidValue):
        outputs.append_outputs(path, {"good": "1", name: "2"})
    assert path.read_text(encoding="utf-8") == "kept=1\n"


def test_broken_unicode_is_refused(tmp_path: Path) -> None:
    """Half of a surrogate pair cannot be written, so nothing is."""
    path = tmp_path / "out"
    with pytest.raises(InvalidValue):
        outputs.append_outputs(path, {"good": "1", "bad": "\ud800"})
    assert not path.exists()


def test_appends_after_a_file_without_a_last_line_feed(tmp_path: Path) -> None:
    """A12: what another step left unfinished does not swallow our first name."""
    path = tmp_path / "out"
    path.write_text("before=1", encoding="utf-8")
    outputs.append_outputs(path, {"matrix": "{}", "count": "0"})
    assert read_like_the_runner(path.read_text(encoding="utf-8")) == {"before": "1", "matrix": "{}", "count": "0"}


def test_unwritable_file_is_a_message(tmp_path: Path) -> None:
    """A folder, or a missing folder, is named."""
    for path in (tmp_path, tmp_path / "none" / "out", Path("a\x00b")):
        with pytest.raises(CannotWrite, match="GITHUB_OUTPUT"):
            outputs.append_outputs(path, {"a": "1"})
