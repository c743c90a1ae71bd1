"""Reading untrusted JSON: every fault is a finding with its line, never an exception."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixgen.errors import ManifestUnreadable
from matrixgen.source import MAX_BYTES, escape, parse, read_text

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(alphabet='ab/~é\n"\\{[:,')
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='ab/~"{'), inner, max_size=4),
    max_leaves=20,
)


def pointers(value: Any, pointer: str = "") -> list[str]:
    """All JSON pointers into a value."""
    found = [pointer]
    if isinstance(value, dict):
        found += [p for key, item in value.items() for p in pointers(item, f"{pointer}/{escape(key)}")]
    if isinstance(value, list):
        found += [p for index, item in enumerate(value) for p in pointers(item, f"{pointer}/{index}")]
    return found


@given(JSON.filter(lambda value: value is not None), st.sampled_from([None, 1]))
def test_every_pointer_has_a_line(value: Any, indent: int | None) -> None:
    """The line map knows exactly the pointers of the value, whatever the keys hold."""
    document = parse("x.json", json.dumps(value, indent=indent))
    assert set(document.lines()) == set(pointers(value))


def test_lines_are_those_of_the_values() -> None:
    """Line numbers start at 1 and follow the text."""
    lines = parse("x.json", '{\n"a": [\n1,\n{"b": 2}\n],\n\n"c": 3}').lines()
    assert lines == {"": 1, "/a": 2, "/a/0": 3, "/a/1": 4, "/a/1/b": 4, "/c": 7}


def test_line_of_a_missing_value_is_that_of_its_parent() -> None:
    """A key that is absent is reported where it should have been."""
    document = parse("x.json", '{\n"a": {}}')
    assert document.line("/a/b/c", document.lines()) == 2


@pytest.mark.parametrize(
    ("text", "id_", "line"),
    [
        ("", "MG002", 1),
        (" \n ", "MG002", 2),
        ("null", "MG010", 1),
        ('{\n"a": 1,\n}', "MG002", 3),
        ("{'a': 1}", "MG002", 1),
        ('{"a": NaN}', "MG002", 1),
        ('{"a": -Infinity}', "MG002", 1),
        ('{"a": ' + "9" * 5000 + "}", "MG002", 1),
        ("[" * 100_000, "MG004", 1),
        ("\n" * 3 + '{"a":' * 100_000, "MG004", 4),
        ('{"a": 1,\n"b": 2,\n"a": 3}', "MG003", 3),
        ('{"a": "\\u0000"}', "MG005", 1),
        ('{\n"a": "\\u001b[31m"}', "MG005", 2),
        ('{"a": "\\ud800"}', "MG005", 1),
        ('{"\\udfff": 1}', "MG005", 1),
        ('{"a": "\\b"}', "MG005", 1),
        ('{"a": "\x7f"}', "MG005", 1),
    ],
)
def test_bad_text_is_a_finding(text: str, id_: str, line: int) -> None:
    """Syntax, constants, huge numbers, nesting, duplicates and control characters each have an id and a line."""
    findings = parse("x.json", text).findings
    assert [(finding.id, finding.line) for finding in findings] == [(id_, line)]
    assert all(finding.fix and finding.message for finding in findings)


def test_all_duplicates_are_reported() -> None:
    """Not only the first."""
    findings = parse("x.json", '{"a": {"x": 1, "x": 2},\n"b": 1, "b": 1}').findings
    assert [finding.pointer for finding in findings] == ["/a/x", "/b"]


def test_surrogate_pairs_are_text() -> None:
    """An escaped emoji is two escapes and one good character."""
    document = parse("x.json", '{"a": "\\ud83d\\ude00"}')
    assert document.data == {"a": "\N{GRINNING FACE}"}
    assert not document.findings


def test_whole_floats_are_integers() -> None:
    """1.0 and 1 are the same value, so they give the same digest."""
    assert repr(parse("x.json", "[1.0, 1e3, 1.5]").data) == "[1, 1000, 1.5]"


def test_reading_refuses_what_is_no_file(tmp_path: Path) -> None:
    """Missing, folder, not UTF-8, too large: each names the path and the next step."""
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"a": "\xe9"}')
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for path, word in ((tmp_path / "none", "not exist"), (tmp_path, "folder"), (latin, "UTF-8"), (large, "bytes")):
        with pytest.raises(ManifestUnreadable, match=word) as caught:
            read_text(path)
        assert str(path) in str(caught.value)
        assert caught.value.fix


def test_a_name_with_a_null_byte_is_refused() -> None:
    """The operating system's complaint about the name becomes ours."""
    with pytest.raises(ManifestUnreadable):
        read_text(Path("a\x00b"))
