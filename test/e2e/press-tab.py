"""Types the first argument, which sets up completion, into the shell that the third and the rest start, and then words that
the tabulator is to complete; the second argument is a sandbox's id."""

import sys

from terminal import Terminal

set_up, sandbox, *shell = sys.argv[1:]
terminal = Terminal(shell)
# Nothing that is waited for is typed as it stands, so that no echo is taken for the answer.
terminal.type_in(f"{set_up}; echo rea''dy\n")
terminal.wait_for(b"ready\r\n")
terminal.type_in("sandmesh rel\t")
terminal.wait_for(b"release")
terminal.type_in("\x15sandmesh exec --det\t")
terminal.wait_for(b"--detach")
terminal.type_in("\x15sandmesh exec sb-\t")
terminal.wait_for(sandbox.encode())
# What leads to a path has no blank behind it, and for what is no file's name no file stands in.
terminal.type_in("\x15sandmesh cp sb-\t/et'c'")
terminal.wait_for(f"{sandbox}:/et'c'".encode())
terminal.type_in("\x15sandmesh exec -s READ\tX'Y'")
terminal.wait_for(b"X'Y'")
if b"README" in terminal.seen:
    sys.exit(f"a file is no session: {terminal.seen!r}")
terminal.type_in("\x15sandmesh ver''sion\n")
terminal.wait_for(b"(bun ")
terminal.type_in("exit\n")
sys.exit(terminal.end())
