"""A program on a terminal of 31 rows and 101 columns, and what it shows there."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time


class Terminal:
    def __init__(self, argv: list[str]) -> None:
        self.child, self.fd = pty.fork()
        if self.child == 0:
            os.execvp(argv[0], argv)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 101, 0, 0))
        self.seen = b""

    def type_in(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + 20
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                sys.exit(f"waited in vain for {text!r}; seen: {self.seen!r}")
            part = self._read()
            if not part:
                sys.exit(f"the program ended before {text!r}; seen: {self.seen!r}")
            self.seen += part

    def end(self) -> int:
        """Reads on until the program ends: its exit code."""
        while part := self._read():
            self.seen += part
        _, status = os.waitpid(self.child, 0)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bytes:
        try:
            return os.read(self.fd, 65536)
        except OSError:
            return b""
