"""Runs a program on a terminal, ends it there by two signals at once, after which the terminal is to be as it was before."""

import os
import signal
import sys
import termios

from terminal import Terminal

terminal = Terminal(sys.argv[1:])
before = termios.tcgetattr(terminal.fd)
# The words are split where they are typed, so that the terminal's echo is not taken for the answer.
terminal.type_in("echo rea''dy\n")
terminal.wait_for(b"ready\r\n")
if termios.tcgetattr(terminal.fd)[3] & termios.ECHO:
    sys.exit("the terminal was not raw while the program ran")
# Stopped, it finds both when it goes on.
for each in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
    os.kill(terminal.child, each)
code = terminal.end()
at_once = b"ended at once" in terminal.seen
as_before = termios.tcgetattr(terminal.fd) == before
sys.exit(None if code == 130 and at_once and as_before else f"{code=} {at_once=} {as_before=} {terminal.seen!r}")
