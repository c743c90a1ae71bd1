"""Options and switches of the whole test suite."""

from __future__ import annotations

import os
import signal

import pytest

# a shell that starts the tests in the background, or nohup, lets them, and all that they start, ignore these
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites expected files; `--run-slow` runs tests that take more than a few seconds."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")
    parser.addoption("--run-slow", action="store_true", help="also run tests that are marked slow (always on in CI)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests, except in CI and with --run-slow."""
    if config.getoption("--run-slow") or os.environ.get("CI"):
        return
    skip = pytest.mark.skip(reason="slow: give --run-slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """True when golden files are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))
