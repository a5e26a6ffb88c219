"""Runs a program on a terminal of 31 rows and 101 columns and types into it, as a person would:
asks for the window's size, interrupts a sleep with Ctrl-C, and leaves with status 7."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 101, 0, 0))
seen = b""


def wait_for(text: bytes) -> None:
    global seen
    deadline = time.monotonic() + 20
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            sys.exit(f"waited in vain for {text!r}; seen: {seen!r}")
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            sys.exit(f"the program ended before {text!r}; seen: {seen!r}")


def type_in(text: str) -> None:
    os.write(terminal, text.encode())


# The words are split where they are typed, so that the terminal's echo is not taken for the answer.
type_in("echo rea''dy\n")
wait_for(b"ready\r\n")
type_in("echo si''ze $(stty size)\n")
wait_for(b"size 31 101")
type_in("echo sta''rted; sleep 60\n")
wait_for(b"started\r\n")
type_in("\x03")
type_in("echo after inter''rupt $?\n")
wait_for(b"after interrupt 130")
type_in("exit 7\n")
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    seen += part
_, status = os.waitpid(child, 0)
sys.stdout.write(seen.decode(errors="replace"))
sys.exit(os.waitstatus_to_exitcode(status))
