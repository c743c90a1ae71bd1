"""The pages of field notes: every note is there once, and the tests that a row names exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
UNHELD = ("open: ", "elsewhere: ")


def notes(section: str, last: int, *absent: int) -> tuple[str, ...]:
    """Ids of a section of the collection, which leaves out some numbers."""
    return tuple(f"{section}{number}" for number in range(1, last + 1) if number not in absent)


# page -> the notes that it owes
PAGES = {
    "planner": (
        *notes("A", 34, 15, 16, 30),
        *notes("F", 19, 2, 12),
        *("G7", "G8", "G9", "G10", "G11", "G12", "G14", "G16"),
    ),
    "gate": ("A7", "A8", "A9", "C21", *notes("B", 20, 9), *notes("F", 19, 2, 12), *notes("G", 16, 13)),
    "bytes": ("B1", "B3", "B4", "B5", "B12", "B15", *notes("C", 22, 5, 16), *notes("D", 24, 3, 11, 12)),
    "battery": notes("E", 30, 2, 6, 8),
}


def page(name: str) -> str:
    """The text of a page."""
    return (ROOT / "docs" / "field-notes" / f"{name}.md").read_text(encoding="utf-8")


def rows(text: str) -> list[tuple[str, str, str]]:
    """(note, right behaviour, held by) of the table."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and re.fullmatch(r"[A-G]\d+", cells[0]):
            found.append((cells[0], cells[1], cells[2]))
    return found


@functools.cache
def named_in(file: str) -> frozenset[str]:
    """Names of the tests in a file; none where there is no such file."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def problems(name: str, text: str) -> list[str]:
    """What is wrong with a page; empty if nothing is."""
    found = rows(text)
    names = [note for note, _, _ in found]
    wrong = [f"{note} is not there once" for note in PAGES[name] if names.count(note) != 1]
    wrong += [f"{note} is no note of this page" for note in names if note not in PAGES[name]]
    for note, behaviour, held in found:
        named = TEST.findall(held)
        wrong += [f"{note}: {file}::{test} is no test" for file, test in named if test not in named_in(file)]
        if not behaviour or not (named or held.startswith(UNHELD)):
            wrong.append(f"{note} is held by nothing")
    return wrong


@pytest.mark.parametrize("name", PAGES)
def test_every_note_is_held_by_a_test_that_exists(name: str) -> None:
    """Every note has its row, and each row names real tests or says why there is none."""
    assert problems(name, page(name)) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("planner", "| A12 |", "| A13 |", "A12 is not there once"),
        ("planner", "| G16 |", "| G17 |", "G17 is no note of this page"),
        ("planner", "elsewhere: legal cuts", "legal cuts", "F13 is held by nothing"),
        ("gate", "test_only_success_counts_for_a_job", "test_that_nobody_wrote", "is no test"),
        ("gate", "tests/workflows/test_act.py::test_red_where_a_leg_is_lost", "tests/none.py::test_x", "is no test"),
        ("bytes", "::test_416_begins_anew`", "::test_417_begins_anew`", "test_417_begins_anew is no test"),
        (
            "battery",
            "| E28 | two empty sides, and NaN on both, are no agreement |",
            "| E28 | |",
            "E28 is held by nothing",
        ),
    ],
)
def test_a_wrong_row_is_found(name: str, old: str, new: str, words: str) -> None:
    """A missing note, one too many, a test or file that does not exist, and a row that is held by nothing."""
    text = page(name)
    assert old in text
    assert any(words in problem for problem in problems(name, text.replace(old, new)))


def test_every_page_is_checked() -> None:
    """A page that nobody checks would be believed."""
    assert {path.stem for path in (ROOT / "docs" / "field-notes").glob("*.md")} == set(PAGES)
