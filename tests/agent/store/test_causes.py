"""Every cause is an error of its own and has its line in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from agent import errors

PAGE = Path(__file__).parents[3] / "docs" / "store.md"
CLASSES = [
    found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, errors.StoreError) and found is not errors.StoreError
]


def test_every_cause_is_documented() -> None:
    """The table of causes and the classes agree, in order."""
    table = PAGE.read_text(encoding="utf-8").partition("## Causes")[2]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == sorted(found.cause for found in CLASSES)


def test_one_class_a_cause() -> None:
    """No two classes share a cause; each is infrastructure and says its cause first."""
    assert len({found.cause for found in CLASSES}) == len(CLASSES) > 20
    assert all(found.exit_code == 4 and str(found("x")) == f"{found.cause}: x" for found in CLASSES)
