"""Several who write to one command's stdin, from one client and from others, also in TypeScript: all of each is read,
once and in its order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest import BUN, ROOT, Backend
from played import play
from test_cuts import Way, cuttable_mesh

import sandmesh
from sandmesh._wire.ids import new_uuid7

KIB = 1024


@asynccontextmanager
async def two_clients(local: Backend) -> AsyncIterator[tuple[sandmesh.Sandbox, sandmesh.Sandbox, Way]]:
    """A sandbox as each has it; the second one's way can be cut."""
    async with local.connect() as mesh, await mesh.acquire("host") as own:
        async with cuttable_mesh(local) as (way, other):
            yield own, other.sandbox(own.id), way


async def test_two_clients_that_write_by_turns_are_both_read_in_the_order_of_the_answers(local: Backend) -> None:
    async with two_clients(local) as (own, other, _way):
        command = await own.start("cat", stdin_open=True, stdin="with it\n")
        theirs, mine = other.command(command.id).stdin, own.command(command.id).stdin
        names = {id(command.stdin): "first\n", id(theirs): "theirs\n", id(mine): "mine\n"}
        turns = [theirs, command.stdin, theirs, command.stdin, mine, theirs, command.stdin, mine]
        for stdin in turns:
            await stdin.write(names[id(stdin)])
        await command.stdin.close()
        expected = "with it\n" + "".join(names[id(stdin)] for stdin in turns)
        assert (await command.wait()).stdout.text == expected


async def test_what_many_write_at_once_comes_whole_and_in_order(local: Backend) -> None:
    async with two_clients(local) as (own, other, _way):
        command = await own.start("cat", stdin_open=True)
        writers = [command.stdin, other.command(command.id).stdin, other.command(command.id).stdin]

        async def write(who: int, stdin: sandmesh.StdinWriter) -> None:
            for i in range(100):
                await stdin.write(f"{who} {i}\n")
            await asyncio.gather(*(stdin.write(f"{who} {i}\n") for i in range(100, 200)))

        await asyncio.gather(*(write(who, stdin) for who, stdin in enumerate(writers)))
        await command.stdin.close()
        lines = (await command.wait()).stdout.text.splitlines()
        for who in range(3):
            assert [line for line in lines if line.startswith(f"{who} ")] == [f"{who} {i}" for i in range(200)]
        assert len(lines) == 600


async def test_of_long_writes_at_once_parts_of_256_kib_stay_in_one_piece(local: Backend) -> None:
    async with two_clients(local) as (own, other, _way):
        command = await own.start("cat", stdin_open=True)
        theirs = other.command(command.id).stdin
        await asyncio.gather(command.stdin.write(b"a" * 1024 * KIB), theirs.write(b"b" * 1024 * KIB))
        await theirs.close()
        text = (await command.wait()).stdout.text
        parts = {text[at : at + 256 * KIB] for at in range(0, len(text), 256 * KIB)}
        assert parts == {"a" * 256 * KIB, "b" * 256 * KIB}
        assert (text.count("a"), text.count("b")) == (1024 * KIB, 1024 * KIB)


async def test_a_source_and_another_client_that_write_to_one_command_are_both_read(local: Backend) -> None:
    async with two_clients(local) as (own, other, _way):
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def source() -> AsyncIterator[str]:
            theirs = other.command(await started).stdin
            for i in range(20):
                yield f"source {i}\n"
                await theirs.write(f"theirs {i}\n")

        text = ""
        async with own.stream("echo go; cat", stdin=source()) as stream:
            async for chunk in stream:
                text += chunk.text
                if not started.done():
                    started.set_result(stream.id)
        lines = text.splitlines()
        for who in ("source", "theirs"):
            assert [line for line in lines if line.startswith(who)] == [f"{who} {i}" for i in range(20)]


async def test_what_two_clients_type_at_a_terminal_is_read(local: Backend) -> None:
    async with two_clients(local) as (own, other, _way):
        line = 'stty -echo; echo go; while read line; do echo "<$line>"; done'
        async with await own.terminal(line) as terminal:
            theirs = other.command(terminal.command.id).stdin
            assert "go" in (await anext(aiter(terminal.output))).text
            await terminal.write("one\n")
            await theirs.write("two\n")
            await terminal.write("three\n")
            await theirs.write("four\n")
            await terminal.write("five\n")
            seen = ""
            async for chunk in terminal.output:
                seen += chunk.text
                if "<five>" in seen:
                    break
            assert seen.split() == ["<one>", "<two>", "<three>", "<four>", "<five>"]


async def test_what_a_cut_client_sends_again_is_taken_once_and_no_others_bytes_for_it(local: Backend) -> None:
    async with two_clients(local) as (own, other, way):
        command = await own.start("until [ -e go ]; do sleep 0.02; done; cat", stdin_open=True, cwd="/tmp")
        theirs = other.command(command.id).stdin
        await theirs.write("begin\n")
        # More than a pipe holds: it is there, and not answered yet.
        big = "x" * 200_000 + "\n"
        waiting = asyncio.ensure_future(theirs.write(big))
        await other.ping()
        mine = asyncio.ensure_future(command.stdin.write("mine\n"))
        await own.ping()
        way.cut()
        await own.files.write("/tmp/go", "")
        await asyncio.gather(waiting, mine)
        for i in range(30):
            writing = asyncio.ensure_future(theirs.write(f"theirs {i}\n"))
            await asyncio.sleep(0)
            if i % 5 == 0:
                way.cut()
            await command.stdin.write(f"mine {i}\n")
            await writing
        await theirs.close()
        lines = (await command.wait()).stdout.text.splitlines()
        for who in ("theirs", "mine"):
            assert [line for line in lines if line.startswith(f"{who} ")] == [f"{who} {i}" for i in range(30)]
        assert (lines.count("mine"), lines.count("begin"), lines.count(big[:-1])) == (1, 1, 1)
        assert len(lines) == 63


async def test_after_one_has_closed_stdin_anothers_write_is_refused_and_its_closing_is_not(local: Backend) -> None:
    async with two_clients(local) as (own, other, _way):
        command = await own.start("cat; sleep 30", stdin_open=True)
        theirs = other.command(command.id).stdin
        await theirs.write("theirs\n")
        await command.stdin.write("mine\n")
        await theirs.close()
        for stdin in (command.stdin, own.command(command.id).stdin):
            with pytest.raises(sandmesh.SessionClosedError) as caught:
                await stdin.write("lost")
            assert caught.value.reason == "closed"
        await command.stdin.close()
        await command.cancel()
        assert (await command.wait()).stdout.text == "theirs\nmine\n"


async def test_a_command_whose_stdin_another_has_closed_before_its_source_was_through_says_so(local: Backend) -> None:
    async with two_clients(local) as (own, other, _way):
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def source() -> AsyncIterator[str]:
            yield "a part\n"
            await other.command(await started).stdin.close()
            yield "lost\n"

        async with own.stream("cat; sleep 30", stdin=source()) as stream:
            with pytest.raises(sandmesh.SessionClosedError):
                async for _chunk in stream:
                    if not started.done():
                        started.set_result(stream.id)


async def test_the_first_writer_loses_nothing_behind_more_than_a_daemon_counts(local: Backend) -> None:
    async with two_clients(local) as (own, other, _way):
        command = await own.start("cat", stdin_open=True)
        await command.stdin.write("first\n")
        for _writer in range(300):
            await other.command(command.id).stdin.write(".")
        await command.stdin.write("\nlast\n")
        await command.stdin.close()
        assert (await command.wait()).stdout.text == "first\n" + 300 * "." + "\nlast\n"


# Writes each line that it reads to the command, and says when it was taken; then 200 numbered ones at once.
TYPESCRIPT = """
import { createInterface } from "node:readline";
const { connect } = await import(process.env.SDK);
const [sandbox, id] = process.argv.slice(-2);
const mesh = await connect();
const { stdin } = mesh.sandbox(sandbox).command(id);
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "many") await Promise.all(Array.from({ length: 200 }, (_, i) => stdin.write(`theirs ${i}\\n`)));
  else await stdin.write(`${line}\\n`);
  process.stdout.write("taken\\n");
}
await mesh.close();
"""


async def test_clients_in_python_and_typescript_that_write_to_one_command_are_both_read(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as own:
        command = await own.start("cat", stdin_open=True)
        env = {**local.environment, "SDK": str(ROOT / "sdk" / "typescript" / "mod.ts")}
        pipe = asyncio.subprocess.PIPE
        argv = [BUN, "-e", TYPESCRIPT, own.id, command.id]
        theirs = await asyncio.create_subprocess_exec(*argv, env=env, stdin=pipe, stdout=pipe)
        assert theirs.stdin is not None and theirs.stdout is not None
        try:
            for turn in range(5):
                await command.stdin.write(f"python {turn}\n")
                theirs.stdin.write(f"typescript {turn}\n".encode())
                assert await theirs.stdout.readline() == b"taken\n"
            theirs.stdin.write(b"many\n")
            await asyncio.gather(*(command.stdin.write(f"mine {i}\n") for i in range(200)))
            assert await theirs.stdout.readline() == b"taken\n"
            theirs.stdin.close()
            assert await theirs.wait() == 0
        finally:
            if theirs.returncode is None:
                theirs.kill()
        await command.stdin.close()
        lines = (await command.wait()).stdout.text.splitlines()
        assert lines[:10] == [f"{who} {turn}" for turn in range(5) for who in ("python", "typescript")]
        for who in ("mine", "theirs"):
            assert [line for line in lines if line.startswith(who)] == [f"{who} {i}" for i in range(200)]
        assert len(lines) == 410, set(lines[10:]) - {f"{who} {i}" for who in ("mine", "theirs") for i in range(200)}


class Counted:
    """A sandbox's side of stdin, played: all bytes counted together, as a daemon of before does, or each writer's
    apart."""

    def __init__(self, apart: bool) -> None:
        self.text = b""
        self.counts: dict[str, int] = {}
        self.apart = apart
        self.meanwhile = b""
        """What another client writes behind the next request."""

    def answer(self, verb: str, request: dict[str, Any]) -> list[Any]:
        if verb != "stdin":
            return []
        writer = request.get("writer", "") if self.apart else ""
        received = self.counts.get(writer, 0)
        if request["offset"] > received:
            message = "offset: a gap"
            return [{"error": {"code": "invalid_request", "message": message, "retryable": False, "field": "offset"}}]
        self.take(writer, request["data"][received - request["offset"] :])
        received = self.counts[writer]
        if self.meanwhile:
            self.take("" if not self.apart else "another", self.meanwhile)
            self.meanwhile = b""
        return [{"received": received, "writer": writer} if self.apart else {"received": received}]

    def take(self, writer: str, data: bytes) -> None:
        self.text += data
        self.counts[writer] = self.counts.get(writer, 0) + len(data)


async def test_of_a_daemon_that_counts_all_together_each_write_by_turns_is_taken_and_what_is_lost_is_told(
    backend: Backend,
) -> None:
    async with play(backend) as (played, box):
        daemon = Counted(apart=False)
        played.script = daemon.answer
        first, after = box.command(new_uuid7()).stdin, box.command(new_uuid7()).stdin
        for stdin, text in ((first, "one "), (first, "two "), (after, "three "), (after, "four "), (first, "five ")):
            await stdin.write(text)
        daemon.meanwhile = b"six "
        with pytest.raises(sandmesh.ConflictError):
            await after.write("ab")
        await after.write("seven")
        daemon.take("", b" eight")
        await after.close()
        assert daemon.text == b"one two three four five six seven eight"


async def test_who_attaches_to_a_command_of_such_a_daemon_writes_behind_what_was_there(backend: Backend) -> None:
    async with play(backend) as (played, box):
        daemon = Counted(apart=False)
        played.script = daemon.answer
        daemon.take("", b"one ")
        async with box.attach(new_uuid7()) as stream:
            await stream.write_stdin("two")
        assert daemon.text == b"one two"


async def test_a_writer_that_the_daemon_has_given_up_goes_on_as_another_one(backend: Backend) -> None:
    async with play(backend) as (played, box):
        daemon = Counted(apart=True)
        forgets = False

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            nonlocal forgets
            if forgets and verb == "stdin" and request["offset"] > 0:
                forgets = False
                daemon.counts.clear()
            return daemon.answer(verb, request)

        played.script = script
        stdin = box.command(new_uuid7()).stdin
        long = "x" * 600_000
        await stdin.write("one ")
        for text in ("two ", long):
            forgets = True
            await stdin.write(text)
        await stdin.write(" three")
        assert daemon.text.decode() == f"one two {long} three"


async def test_what_is_left_of_a_cancelled_write_takes_no_later_bytes_place(backend: Backend) -> None:
    async with play(backend) as (played, box):
        daemon = Counted(apart=True)
        late: list[dict[str, Any]] = []

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "stdin" and request["data"] == b"lost":
                late.append(request)
                return []
            answers = daemon.answer(verb, request)
            # Behind whatever the client asks next.
            for each in late:
                daemon.answer("stdin", each)
            return answers

        played.script = script
        stdin = box.command(new_uuid7()).stdin
        await stdin.write("one ")
        writing = asyncio.ensure_future(stdin.write("lost"))
        while not late:
            await asyncio.sleep(0.005)
        writing.cancel()
        await asyncio.wait({writing})
        await stdin.write("two ")
        await stdin.write("three")
        assert daemon.text.decode() == "one two lostthree"


def test_two_without_await_write_to_one_command(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as own, local.connect_sync() as other:
        command = own.start("cat", stdin_open=True)
        theirs = other.sandbox(own.id).command(command.id).stdin
        for _turn in range(3):
            command.stdin.write("mine\n")
            theirs.write("theirs\n")
        command.stdin.close()
        with pytest.raises(sandmesh.SessionClosedError):
            theirs.write("lost")
        assert command.wait().stdout.text == 3 * "mine\ntheirs\n"
