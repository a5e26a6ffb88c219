"""Runs a program on a terminal and types into it, as a person would: asks for the window's size, interrupts a sleep with
Ctrl-C, and leaves with status 7."""

import sys

from terminal import Terminal

terminal = Terminal(sys.argv[1:])
# The words are split where they are typed, so that the terminal's echo is not taken for the answer.
terminal.type_in("echo rea''dy\n")
terminal.wait_for(b"ready\r\n")
terminal.type_in("echo si''ze $(stty size)\n")
terminal.wait_for(b"size 31 101")
terminal.type_in("echo sta''rted; sleep 60\n")
terminal.wait_for(b"started\r\n")
terminal.type_in("\x03")
terminal.type_in("echo after inter''rupt $?\n")
terminal.wait_for(b"after interrupt 130")
terminal.type_in("exit 7\n")
code = terminal.end()
sys.stdout.write(terminal.seen.decode(errors="replace"))
sys.exit(code)
