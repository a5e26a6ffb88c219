"""The way out: what is still held when the process ends, also a forked one, is released before it is gone."""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import Any, Protocol

EXIT_S = 20.0
"""For all of it."""


class Releasing(Protocol):
    def release_at_exit(self, timeout: float) -> None:
        """Releases all that it holds, or gives up after ``timeout``."""


_open: weakref.WeakSet[Releasing] = weakref.WeakSet()


def guard(releasing: Releasing) -> None:
    """From now on until ``unguard`` an exit of this process releases what this holds first."""
    _open.add(releasing)
    _heed_exit()


def unguard(releasing: Releasing) -> None:
    _open.discard(releasing)


def _at_exit() -> None:
    deadline = time.monotonic() + EXIT_S
    for releasing in list(_open):
        releasing.release_at_exit(max(0.1, deadline - time.monotonic()))


# multiprocessing, and those that are made from it. Their children end by os._exit, so that atexit never runs there.
_FORKING = ("multiprocessing.util", "multiprocess.util", "billiard.util")
# Last of all: what is joined and flushed before may use a sandbox.
_PRIORITY = -1000


def _heed_exit() -> None:
    """In the process that connects: what its parent heeds is the parent's."""
    global _heeding
    if _heeding:
        return
    _heeding = True
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    for name in _FORKING:
        util: Any = sys.modules.get(name)
        if util is not None:
            util.Finalize(None, _at_exit, exitpriority=_PRIORITY)


def _after_fork() -> None:
    # The thread stayed with the parent, and so do the leases: a child that exits must not release them.
    global _heeding
    _heeding = False
    _open.clear()


_heeding = False
os.register_at_fork(after_in_child=_after_fork)
