"""The same SDK without ``await``: ``with sandmesh.sync.connect() as mesh``. Each connection has an event loop on a
thread of its own, on which the asynchronous SDK does the work; so renewal, cancellation and typed errors are the same.
May be used from several threads at once, and where an event loop runs already (Jupyter). Ctrl-C while a command runs
ends the command in the sandbox."""

from .commands import Command, CommandStream, Shell, StdinWriter, Terminal
from .files import Files
from .meshes import Mesh, Run, connect
from .sandboxes import Forward, Sandbox

__all__ = [
    "Command",
    "CommandStream",
    "Files",
    "Forward",
    "Mesh",
    "Run",
    "Sandbox",
    "Shell",
    "StdinWriter",
    "Terminal",
    "connect",
]
