"""sandmesh: thousands of stateful sandboxes in bursts for agentic reinforcement learning.

    async with sandmesh.connect() as mesh:
        async with await mesh.acquire(image="host", cpu=1, memory="512MiB") as box:
            result = await box.exec("pytest -q", timeout=60)

Durations are seconds. ``sandmesh.sync`` is the same without ``await``.
"""

from . import errors, sync
from ._wire.ids import new_uuid7
from .commands import CommandLine, CommandOptions
from .errors import (
    AcquireTimeoutError,
    BootFailedError,
    BusyError,
    CanceledError,
    CommandFailedError,
    ConflictError,
    ConnectionError,
    DeadlineError,
    DrainingError,
    FileError,
    ImageError,
    IncompleteCommandError,
    InternalError,
    InvalidRequestError,
    LeaseLostError,
    NoMeshError,
    NotFoundError,
    OutputGoneError,
    PermissionDeniedError,
    PoolUnavailableError,
    ProviderError,
    QueueFullError,
    QuotaExceededError,
    SandboxLostError,
    SandmeshError,
    SessionClosedError,
    TooLargeError,
    UnknownCommandError,
    UnknownVerbError,
    UnreachableError,
    UnsupportedError,
)
from .events import Event
from .files import FileChange, Files, FileStat, Match, Matches
from .handles import Command, Terminal
from .meshes import Mesh, connect
from .outcomes import (
    Canceled,
    Exited,
    NotStarted,
    OomKilled,
    Outcome,
    OutputLimit,
    Signaled,
    TimedOut,
    shell_status,
)
from .ports import Forward
from .results import Chunk, CommandEnd, ExecResult, Output, Total, Totals
from .runs import Run
from .sandboxes import CommandInfo, Grant, Sandbox, SandboxInfo, Timeline
from .shells import SessionInfo, Shell
from .specs import Sidecar, SpecOptions, Volume
from .stdin import Input, StdinWriter
from .streams import CommandStream

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeoutError",
    "BootFailedError",
    "BusyError",
    "Canceled",
    "CanceledError",
    "Chunk",
    "Command",
    "CommandEnd",
    "CommandFailedError",
    "CommandInfo",
    "CommandLine",
    "CommandOptions",
    "CommandStream",
    "ConflictError",
    "ConnectionError",
    "DeadlineError",
    "DrainingError",
    "Event",
    "ExecResult",
    "Exited",
    "FileChange",
    "FileError",
    "FileStat",
    "Files",
    "Forward",
    "Grant",
    "ImageError",
    "IncompleteCommandError",
    "Input",
    "InternalError",
    "InvalidRequestError",
    "LeaseLostError",
    "Match",
    "Matches",
    "Mesh",
    "NoMeshError",
    "NotFoundError",
    "NotStarted",
    "OomKilled",
    "Outcome",
    "Output",
    "OutputGoneError",
    "OutputLimit",
    "PermissionDeniedError",
    "PoolUnavailableError",
    "ProviderError",
    "QueueFullError",
    "QuotaExceededError",
    "Run",
    "Sandbox",
    "SandboxInfo",
    "SandboxLostError",
    "SandmeshError",
    "SessionClosedError",
    "SessionInfo",
    "Shell",
    "Sidecar",
    "Signaled",
    "SpecOptions",
    "StdinWriter",
    "Terminal",
    "TimedOut",
    "Timeline",
    "TooLargeError",
    "Total",
    "Totals",
    "UnknownCommandError",
    "UnknownVerbError",
    "UnreachableError",
    "UnsupportedError",
    "Volume",
    "connect",
    "errors",
    "new_uuid7",
    "shell_status",
    "sync",
]
