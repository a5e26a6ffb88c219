"""Whether a sandbox ended by the kernel's kill for memory. The kernel counts these kills for the whole sandbox, and names no
victim: the last one must have been shortly before. What that cannot tell apart: a command killed for memory, and within
the same seconds the first process killed by someone else."""

import os
import re
import select
import time

import kernel as k

# How long the first process may take from the kernel's decision to its end, as a command (agent/process/oom.ts).
DYING_S = 5
AGAIN_MS = 1000


class Kills:
    """`path`: memory.events (version 2) or memory.oom_control (1); None where memory is not limited. Nothing is polled: the
    kernel tells, and makes `poller` ready (version 2 also at other events of memory.events, each 10 ms at most)."""

    def __init__(self, path, poller):
        self.counter = self.bell = None
        self.count, self.last, self.again = 0, None, False
        if path is None:
            return
        try:
            self.counter = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if os.path.basename(path) == "memory.events":
                poller.register(self.counter, select.POLLPRI)
                return
            self.bell = k.eventfd()
            with open(f"{os.path.dirname(path)}/cgroup.event_control", "w") as f:
                f.write(f"{self.bell} {self.counter}")
            poller.register(self.bell, select.POLLIN)
        except OSError:
            pass  # Looked at with the output and at the end alone.

    def look(self):
        """When `poller` was ready, for whatever it was."""
        if self.counter is None:
            return
        self.again = self.rang()
        try:
            found = re.search(rb"^oom_kill (\d+)$", os.pread(self.counter, 4096, 0), re.M)
        except OSError:
            return  # The group is gone.
        count = int(found[1]) if found else 0
        if count != self.count:
            self.count, self.last = count, time.monotonic()

    def rang(self):
        """Version 1 tells before it kills and counts: it is to be looked again."""
        if self.bell is None:
            return False
        try:
            return bool(os.read(self.bell, 8))
        except BlockingIOError:
            return False

    def next_ms(self, otherwise):
        return min(AGAIN_MS, otherwise) if self.again else otherwise

    def was_now(self):
        return self.last is not None and time.monotonic() - self.last < DYING_S
