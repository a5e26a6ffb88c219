"""The same without asyncio. Ctrl-C ends the command in the sandbox; SIGTERM is made to end the program in order."""

import signal
import sys

import sandmesh

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

with sandmesh.sync.connect() as mesh:
    with mesh.acquire(image="host") as box:
        print(box.exec("echo hello", timeout=10).stdout.text, end="")
        with box.stream("seq 3") as stream:
            print(*(line for chunk in stream for line in chunk.text.split()))
        box.files.write("/tmp/note", "kept\n")
        print(box.files.read_text("/tmp/note"), end="")
