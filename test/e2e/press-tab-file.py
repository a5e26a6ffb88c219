"""Types the first argument, which sets up completion, into the shell that the rest start, and then words that the tabulator
is to complete to names of files in the current folder, and runs them: `sandmesh` is to print its words in angle brackets."""

import sys

from terminal import Terminal

set_up, *shell = sys.argv[1:]
terminal = Terminal(shell)
# Nothing that is waited for is typed as it stands, so that no echo is taken for the answer.
terminal.type_in(f"{set_up}; echo rea''dy\n")
terminal.wait_for(b"ready\r\n")
terminal.type_in("sandmesh cp zz\t")
terminal.wait_for(b"pwned")
terminal.type_in("\n")
terminal.wait_for(b"<cp><zz $(touch pwned) y>")
terminal.type_in("sandmesh cp dd\t")
terminal.wait_for(b"inner")
terminal.type_in("su\t\n")
terminal.wait_for(b"<cp><dd inner/sub>")
terminal.type_in("exit\n")
sys.exit(terminal.end())
