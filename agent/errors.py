"""Every way in which skippy-agent can stop: one class a cause, each with its exit code and the next step.

Exit codes: 0 every owed lane passed · 1 a lane failed · 2 bad input · 3 nothing selected · 4 infrastructure ·
5 a file could not be written · 70 a fault of this program.
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


class FunctionMissing(EngineUnavailable):
    """The libraries under test lack a function that the agent uses."""


class LayoutUnknown(EngineUnavailable):
    """The structs of the libraries under test are not those of the binding, and no record says how they lie."""


class DeviceMissing(InfraError):
    """The device that a leg names is not on this machine. The leg is never run on another one instead."""


class ContextFailed(InfraError):
    """llama.cpp could not create a context (most often: not enough memory)."""


# -- infrastructure: bytes that could not be had as planned --------------------------------------------------------------


class StoreError(InfraError):
    """A file could not be brought to this machine as the plan describes it.

    Attributes:
        cause: stable name of the cause, at the head of every message; `docs/store.md` explains each.
        transient: True where the same source may answer otherwise in a moment.
        restart: True where what was fetched so far must not be continued.
        retry_after: seconds that the other side asked to wait; None where it did not say.
    """

    cause: ClassVar[str] = "store"
    transient: ClassVar[bool] = False
    restart: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{self.cause}: {message}")
        self.retry_after = retry_after


class ArtifactGone(StoreError):
    """The repository, the revision or the file is not there any more. Another revision is never taken instead."""

    cause = "artifact_gone"


class AccessDenied(StoreError):
    """The other side wants credentials, other credentials, or an agreement that was not given."""

    cause = "access_denied"


class SourceRefused(StoreError):
    """The other side refused the request for another reason; asking again would not help."""

    cause = "source_refused"


class RevisionMoved(StoreError):
    """A source answered for another revision than the one that was asked for."""

    cause = "revision_moved"


class WrongBytes(StoreError):
    """A source gave other bytes than the plan describes; the message names the source and what the bytes are."""

    cause = "wrong_bytes"


class ArtifactExpired(StoreError):
    """An artifact of a workflow run was deleted when its retention ended."""

    cause = "artifact_expired"


class WrongRun(StoreError):
    """An artifact does not belong to the workflow run, or the attempt, that was named."""

    cause = "wrong_run"


class ArtifactCorrupt(StoreError):
    """An archive is cut short, is none, or holds what no archive of ours holds."""

    cause = "artifact_corrupt"
    transient = True
    restart = True


class RateLimited(StoreError):
    """The other side asked to come back later."""

    cause = "rate_limited"
    transient = True


class ServerFailed(StoreError):
    """The other side answered with an error of its own (5xx)."""

    cause = "server_failed"
    transient = True


class NetworkFailed(StoreError):
    """No connection, a broken one, or no answer in time."""

    cause = "network_failed"
    transient = True


class Stalled(StoreError):
    """The transfer became too slow to ever end."""

    cause = "stalled"
    transient = True


class CutShort(StoreError):
    """The other side ended the transfer before all bytes were there."""

    cause = "cut_short"
    transient = True


class LinkExpired(StoreError):
    """A signed address that the bytes come from does not work (any more); a new one is asked for."""

    cause = "link_expired"
    transient = True


class ObjectChanged(StoreError):
    """The object was replaced while it was read."""

    cause = "object_changed"
    transient = True
    restart = True


class RangeRefused(StoreError):
    """A transfer cannot be continued where it stopped: the other side says that there is nothing (416)."""

    cause = "range_refused"
    transient = True
    restart = True


class ClockSkewed(StoreError):
    """The clock of this machine is too far off for signed requests."""

    cause = "clock_skew"


class Offline(StoreError):
    """The network was needed and may not be used."""

    cause = "offline"


class NoSpace(StoreError):
    """The disk is full, or would be."""

    cause = "no_space"


class StoreDenied(StoreError):
    """The system does not let this user read or write in the store."""

    cause = "store_permissions"


class StoreBusy(StoreError):
    """Another process holds a file of the store and makes no progress."""

    cause = "store_busy"


class FetchFailed(StoreError):
    """No source could give the file; the message lists what each of them said."""

    cause = "fetch_failed"


class RemoteUnreadable(InfraError):
    """A header on the hub cannot be read."""


# -- what the model or the pin did wrong -----------------------------------------------------------------------------------


class EngineError(AgentError):
    """llama.cpp refused or broke an operation that should have worked."""

    exit_code: ClassVar[int] = 1


class ModelRefused(EngineError):
    """llama.cpp did not load the model."""


class DecodeFailed(EngineError):
    """`llama_decode` returned an error."""


class ProjectionFailed(EngineError):
    """libmtmd did not turn an image into embeddings."""


class StateRefused(EngineError):
    """A sequence state could not be exported or imported in full."""


class CacheUnbalanced(EngineError):
    """A prefix cache gave something back twice, or something that it never took."""


class TwinBuildFailed(EngineError):
    """llama.cpp did not accept a twin's recipe, or stopped while it was asked for the tensors. The message has its words."""


class NoLegalCut(EngineError):
    """A model cannot be split anywhere."""


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


class NoRecipe(AgentError):
    """No twin recipe exists for an architecture or family."""


class NoReceipts(AgentError):
    """A folder that should hold receipts holds none."""

    exit_code: ClassVar[int] = 3


class ReceiptInvalid(AgentError):
    """A receipt cannot be read, does not match its schema, or was changed."""


class TwinNotStored(InfraError):
    """A twin could not be written into the cache folder."""


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


class SourceUnknown(AgentError):
    """A source of files was given in a form that this agent does not know."""


class NotPinned(AgentError):
    """A file is wanted of which revision, size or sha256 are not known, so nothing could be proved about it."""


class NotAStore(AgentError):
    """A folder that was to be cleaned does not carry the tag of a store."""


# -- builds ----------------------------------------------------------------------------------------------------------------


class BuildToolMissing(InfraError):
    """A compiler, cmake or git is not on this machine."""


class BuildToolStuck(InfraError):
    """A compiler, cmake or git did not end in time."""


class HeadersUnreadable(AgentError):
    """Headers are missing, do not compile, or hold what cannot be laid out with certainty."""


class LayoutInvalid(AgentError):
    """A recorded struct layout cannot be read or contradicts itself."""


class RustUnsupported(AgentError):
    """A Rust struct holds what this project does not lay out; the message names the construct. Nothing is guessed."""


class PatchesUnreadable(AgentError):
    """The folder of a patch queue, or a patch in it, cannot be read."""


class BuildFailed(AgentError):
    """llama.cpp could not be patched or built; the message has the end of the log."""

    exit_code: ClassVar[int] = 1


class BuildInvalid(AgentError):
    """An archive of a build is not what it should be: unsafe, incomplete, changed, or of another pin or machine."""


# -- the gate --------------------------------------------------------------------------------------------------------------


class ReceiptsUnreadable(AgentError):
    """The folder of receipts is not there, cannot be listed, or is larger than any run makes it."""


class ReceiptEdited(ReceiptInvalid):
    """A receipt does not have the digest that it states."""


class BuildsUnreadable(AgentError):
    """The lists of what builds hold are not there, cannot be read, or contradict one another."""


class NeedsInvalid(AgentError):
    """What was given as the `needs` context is not one."""


class VerdictInvalid(AgentError):
    """A verdict cannot be read, does not match its schema, contradicts itself, or was changed."""


class StatementInvalid(AgentError):
    """A file is neither a receipt nor a verdict, so that no statement can be made about it."""


class VerdictRefused(AgentError):
    """A verdict is sound and still must not move the pin: not green, of another plan or commit, or too old."""

    exit_code: ClassVar[int] = 1


class PinFileInvalid(AgentError):
    """The pin file of the product's repository is missing, a link, or not of the layout that was named."""


class RepositoryUnusable(InfraError):
    """git or the GitHub API could not be asked; nothing was changed."""


class TokenRejected(AgentError):
    """The token may not do what publishing needs."""


class PushRefused(AgentError):
    """The repository did not take a commit.

    Attributes:
        kind: why, as `agent.gate.refusal.Refusal` names it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


# -- layer packages --------------------------------------------------------------------------------------------------------


class PackageInvalid(AgentError):
    """A layer package, its manifest or a part of it is not what it should be; the message names every fault found."""


class StageInvalid(AgentError):
    """A range of layers that no stage of a package can be."""


class PackageNotWritten(InfraError):
    """A package, or a stage made of one, could not be written; nothing half-written is left."""


# -- the product's binaries ------------------------------------------------------------------------------------------------


class BinaryMissing(InfraError):
    """A binary that a check needs is not where it should be, or may not be executed."""


class BinaryUnusable(InfraError):
    """A binary does not run on this machine."""


class BinaryUnknown(InfraError):
    """A binary is of a version that no adapter knows, or lacks a command or a flag that a check needs."""


class BinaryChanged(InfraError):
    """A binary was replaced while it was tested, so nobody knows which one gave the results."""


class ReportMissing(InfraError):
    """A binary ended without the report that it owes."""


class ReportInvalid(InfraError):
    """A report is no JSON, or of another form than the adapter knows."""


class ServerNotReady(InfraError):
    """A server did not come up, or something else answers in its place."""


class ServerSilent(InfraError):
    """A server stopped answering in time, or the system killed it."""


class ServerDied(EngineError):
    """A server died while it was asked, or broke an answer off."""


class RequestRefused(EngineError):
    """A server refused a request that it should answer."""
