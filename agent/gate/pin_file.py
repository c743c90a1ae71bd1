"""The pin file of the product's repository, in either layout, and its text for a pin."""

from __future__ import annotations

import json
import re
from enum import StrEnum

from agent.errors import PinFileInvalid
from matrixgen.pin import Pin

_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)


class Layout(StrEnum):
    """How a repository keeps its pin."""

    JSON = "json"  # this project's pin.json
    UPSTREAM = "upstream"  # a text file that holds the commit and nothing else

    @property
    def default_path(self) -> str:
        """Where the file is when nobody says otherwise."""
        return "manifests/pin.json" if self is Layout.JSON else "third_party/llama.cpp/upstream.txt"

    def text(self, pin: Pin) -> str:
        """The file for `pin`."""
        return json.dumps(pin.to_json(), indent=2) + "\n" if self is Layout.JSON else f"{pin.commit}\n"

    def commit_in(self, content: bytes, path: str) -> str:
        """The llama.cpp commit that a pin file states.

        Raises:
            PinFileInvalid: it is not of this layout.
        """
        try:
            text = content.decode("utf-8")
            commit = json.loads(text)["commit"] if self is Layout.JSON else text.strip()
        except (ValueError, KeyError, TypeError, RecursionError):
            commit = None
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise PinFileInvalid(
                f"{path} of the product's repository does not hold a llama.cpp commit in the layout {self}: "
                "name the right file with --pin-file and its layout with --layout"
            )
        return commit
