"""Every way in which skippy-agent can stop: one class a cause, each with its exit code and the next step.

Exit codes: 0 every owed lane passed · 1 a lane failed · 2 bad input · 3 nothing selected · 4 infrastructure.
"""

from __future__ import annotations

from typing import ClassVar


class AgentError(Exception):
    """Base of all errors that a user may meet; the message says what, where, why and what to do."""

    exit_code: ClassVar[int] = 2


# -- bad input: a file that is not the model it should be ------------------------------------------------------------


class HeaderError(AgentError):
    """A file could not be taken as a GGUF model.

    Attributes:
        path: the file.
        verdict: stable name of the cause (see `agent.header.verdicts`).
        detail: what is wrong and where.
        next_step: what to do about it.
    """

    def __init__(self, path: str, verdict: str, detail: str, next_step: str) -> None:
        super().__init__(path, verdict, detail, next_step)
        self.path = path
        self.verdict = verdict
        self.detail = detail
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.path}: {self.verdict}: {self.detail}. {self.next_step}"


class HeaderUnreadable(HeaderError):
    """The file does not exist, is not a regular file, or the system refuses to read it."""


class NotAGguf(HeaderError):
    """The file is something else than a GGUF this project can read; the verdict names what it is."""


class HeaderInvalid(HeaderError):
    """The file is a GGUF, but its header contradicts itself, the file's size, or a limit."""


class WrongRole(HeaderError):
    """The file is a sound GGUF, but not of the kind that is needed here (a projector where a model is wanted)."""


# -- infrastructure: the runner, the network, the disk; may be tried again ------------------------------------------------


class InfraError(AgentError):
    """The machine could not do what was asked; says nothing about the model or the pin."""

    exit_code: ClassVar[int] = 4


class EngineUnavailable(InfraError):
    """llama.cpp cannot be loaded here."""


class DeviceMissing(InfraError):
    """The device that a leg names is not on this machine. The leg is never run on another one instead."""


class ContextFailed(InfraError):
    """llama.cpp could not create a context (most often: not enough memory)."""


# -- what the model or the pin did wrong -----------------------------------------------------------------------------------


class EngineError(AgentError):
    """llama.cpp refused or broke an operation that should have worked."""

    exit_code: ClassVar[int] = 1


class ModelRefused(EngineError):
    """llama.cpp did not load the model."""


class DecodeFailed(EngineError):
    """`llama_decode` returned an error."""


class StateRefused(EngineError):
    """A sequence state could not be exported or imported in full."""


class GraphChanged(EngineError):
    """The graph that ran is not the graph that was traced, so a boundary tensor cannot be identified."""


# -- bad input -------------------------------------------------------------------------------------------------------------


class ContractsInvalid(AgentError):
    """`contracts.json` is not what it should be."""


class LaneUnknown(AgentError):
    """A plan names a lane that this agent does not have."""


class ParamsInvalid(AgentError):
    """A lane was given parameters that it does not take."""


class FaultUnknown(AgentError):
    """A seeded fault that does not exist was asked for."""


class ReceiptInvalid(AgentError):
    """A receipt cannot be read, does not match its schema, or was changed."""


class ModelMissing(InfraError):
    """The weights that a leg needs are not on this machine."""


class ArchitectureMismatch(EngineError):
    """The file is not of the architecture that the manifest row says."""


class FileUnreadable(AgentError):
    """A file that was named cannot be read."""


class InternalError(AgentError):
    """A fault of this program."""

    exit_code: ClassVar[int] = 70

    @classmethod
    def report(cls, error: Exception) -> int:
        """Print one line; with SKIPPY_TRACEBACK set, all of it. Returns the exit code."""
        import os
        import sys
        import traceback

        sys.stderr.write(
            f"internal error: {type(error).__name__}: {error}. Set SKIPPY_TRACEBACK=1 and report what it prints.\n"
        )
        if os.environ.get("SKIPPY_TRACEBACK"):
            traceback.print_exception(error)
        return cls.exit_code


class UsageError(AgentError):
    """Options that do not go together."""
