"""Text that a receipt brought along, made harmless for terminals, logs and workflow commands."""

from __future__ import annotations

_WORKFLOW_COMMANDS = {"##[": "## [", "::": ": :"}


def plain(text: str, limit: int = 300) -> str:
    """One printable line of at most `limit` characters.

    Control and direction characters are written as escapes, and what a GitHub runner would take for a command is broken up:
    a receipt comes from a machine that the gate does not trust.
    """
    shown = text[: limit + 1]
    line = "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in shown)
    for command, harmless in _WORKFLOW_COMMANDS.items():
        line = line.replace(command, harmless)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
