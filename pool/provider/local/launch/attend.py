"""The launcher's watch over its supervisors, by a descriptor of each (pidfd), beside its stdin. One that is killed takes
its sandbox along and can tell nobody; nothing else would know of it before the server misses the daemon's heartbeats."""

import os
import select

from files import read_whole, start_time, write_whole

CHUNK_BYTES = 1 << 16


class Supervisors:
    def __init__(self, state):
        self.sandboxes, self.exits = f"{state}/sandboxes", f"{state}/exits"
        self.poll = select.epoll()
        self.poll.register(0, select.EPOLLIN)
        self.watched = {}

    def adopt(self):
        """Those of a launcher before."""
        try:
            names = os.listdir(self.sandboxes)
        except FileNotFoundError:
            return  # Somebody removed the home.
        for name in names:
            who = read_whole(f"{self.sandboxes}/{name}/supervisor") if name[0] != "." and name[-1] != "~" else None
            if who is not None:
                self.add(name, who["pid"], who["start"])

    def add(self, sandbox, pid, start=None):
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return self.tell(sandbox, pid)
        except OSError:
            return  # No descriptor to be had: its loss is known later.
        try:
            same = start is None or start_time(pid) == start
        except OSError:
            same = False
        if not same:
            os.close(fd)
            return self.tell(sandbox, pid)
        self.watched[fd] = (sandbox, pid)
        self.poll.register(fd, select.EPOLLIN)

    def lines(self):
        """Of stdin, until its end; meanwhile the ends of supervisors are told."""
        rest = b""
        while True:
            for fd, _ in self.poll.poll():
                if fd != 0:
                    self.ended(fd)
                    continue
                data = os.read(0, CHUNK_BYTES)
                if not data:
                    return
                *whole, rest = (rest + data).split(b"\n")
                yield from whole

    def ended(self, fd):
        sandbox, pid = self.watched.pop(fd)
        self.poll.unregister(fd)
        try:
            end = os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG)
            orderly = end is not None and end.si_code == os.CLD_EXITED and end.si_status == 0
        except ChildProcessError:
            orderly = False  # Another launcher's: whether it has told its sandbox's end says its file.
        os.close(fd)
        if not orderly:
            self.tell(sandbox, pid)

    def tell(self, sandbox, pid):
        """Where the supervisor has not. Before there was a first process, whoever asked for the launch sees to it."""
        exit_file, folder = f"{self.exits}/{sandbox}", f"{self.sandboxes}/{sandbox}"
        if os.path.exists(exit_file) or not os.path.exists(f"{folder}/running"):
            return
        write_whole(exit_file, {"code": -9, "expired": False, "pid": pid, "supervisor": True})
        # Removed in between: nobody would take the file away any more.
        if not os.path.exists(folder):
            try:
                os.unlink(exit_file)
            except FileNotFoundError:
                pass
