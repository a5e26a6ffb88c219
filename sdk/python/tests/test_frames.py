"""What no well-behaved daemon does: a sandbox played by the test, over real connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from conftest import Backend, until_async
from nats.aio.client import Client
from nats.aio.msg import Msg

import sandmesh
from sandmesh._wire import caller, codec, schema
from sandmesh._wire.credentials import parse_credentials
from sandmesh._wire.ids import new_uuid7
from sandmesh._wire.unpack import unpack_new

SANDBOX = "sb-played"


def end(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    total = {"total_bytes": 0, "dropped_bytes": 0}
    return {
        "type": "end",
        "id": request["id"],
        "incarnation": "x",
        "outcome": {"type": "exited", "code": 0},
        "totals": {"stdout": total, "stderr": total},
        "duration_ms": 1,
        **more,
    }


def chunk(request: dict[str, Any], offset: int, data: bytes) -> dict[str, Any]:
    return {"type": "chunk", "id": request["id"], "stream": "stdout", "offset": offset, "data": data}


def totals(written: int) -> dict[str, Any]:
    zero = {"total_bytes": 0, "dropped_bytes": 0}
    return {"stdout": {"total_bytes": written, "dropped_bytes": 0}, "stderr": zero}


Script = Callable[[str, dict[str, Any]], list[Any]]


class Played:
    """Answers each request as the script says, and keeps what was asked."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.replies: list[str] = []
        """Where each of them is answered."""
        self.reply = ""
        self.script: Script = lambda verb, request: [end(request)]

    async def on_message(self, message: Msg) -> None:
        verb, request = message.subject.split(".")[-1], codec.decode(message.data)
        self.asked.append((verb, request))
        self.replies.append(message.reply)
        answers = [{"sandbox": SANDBOX, "incarnation": "x", "generation": 1}] if verb == "ping" else None
        for answer in self.script(verb, request) if answers is None else answers:
            body = answer if isinstance(answer, bytes) else codec.encode(answer)
            # To word of credit, which wants no answer, the command's goes on.
            self.reply = message.reply or self.reply
            await self.client.publish(self.reply, body)

    def verbs(self) -> list[str]:
        return [verb for verb, _request in self.asked]


@asynccontextmanager
async def play(backend: Backend) -> AsyncIterator[tuple[Played, sandmesh.Sandbox]]:
    credentials = parse_credentials(backend.order("sandbox_credentials", sandbox=SANDBOX)["credentials"])
    client = await nats.connect(
        backend.url,
        user_jwt_cb=lambda: bytearray(credentials.jwt.encode()),
        signature_cb=credentials.sign,
    )
    played = Played(client)
    await client.subscribe(f"sbx.v1.acme.{SANDBOX}.*", cb=played.on_message)
    await client.flush()
    try:
        async with backend.connect() as mesh:
            yield played, mesh.sandbox(SANDBOX)
    finally:
        await client.close()


async def test_doubled_chunks_are_taken_once_and_lost_ones_asked_for_again(backend: Backend) -> None:
    async with play(backend) as (played, box):

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "exec":
                return [
                    chunk(request, 0, b"abc"),
                    chunk(request, 0, b"abc"),
                    chunk(request, 2, b"cd"),
                    chunk(request, 9, b"z"),
                ]
            if verb == "credit":
                return []
            assert (request["from_stdout"], request["id"]) == (4, played.asked[0][1]["id"])
            return [end(request, stdout=b"ef", totals=totals(6))]

        played.script = script
        assert (await box.exec("x")).stdout.bytes == b"abcdef"
        assert played.verbs() == ["exec", "credit", "attach"]


async def test_a_reader_that_was_given_up_for_its_slowness_reads_on(backend: Backend) -> None:
    async with play(backend) as (played, box):
        stalled = {"code": "busy", "message": "no credit came", "retryable": True, "reason": "reader_stalled"}

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "exec":
                return [chunk(request, 0, b"abc"), {"error": stalled}]
            assert request["from_stdout"] == 3
            # Whose place this question takes: a reader whose way was cut is no longer waited for.
            assert played.reply.endswith("." + request["reader"])
            return [end(request, stdout=b"def", totals=totals(6))]

        played.script = script
        assert (await box.exec("x")).stdout.bytes == b"abcdef"
        assert played.verbs() == ["exec", "attach"]


async def test_who_leaves_a_command_s_output_says_so_and_who_has_all_of_it_does_not(backend: Backend) -> None:
    async with play(backend) as (played, box):

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb not in ("exec", "attach"):
                return []
            whole = request.get("shell") == "true"
            return [chunk(request, 0, b"a"), end(request, totals=totals(1))] if whole else [chunk(request, 0, b"a")]

        async def leave(stream: sandmesh.CommandStream) -> None:
            async with stream:
                await anext(aiter(stream))

        async def begin_and_leave() -> None:
            async with box.stream("yes"):
                pass

        async def cancel(running: asyncio.Future[Any]) -> None:
            count = len(played.asked)
            await until_async("the question", lambda: len(played.asked) > count)
            running.cancel()
            await asyncio.wait({running})

        def gone() -> list[str]:
            return [request["token"] for _verb, request in played.asked if request.get("left")]

        played.script = script
        await box.exec("true")
        async with box.stream("true") as stream:
            await stream.wait()
        ways: list[Callable[[], Awaitable[None]]] = [
            lambda: leave(box.stream("yes")),
            lambda: leave(box.command(new_uuid7()).attach()),
            begin_and_leave,
            lambda: cancel(asyncio.ensure_future(box.exec("yes"))),
            lambda: cancel(asyncio.ensure_future(box.command(new_uuid7()).wait())),
        ]
        for count, way in enumerate(ways, 1):
            await way()
            await until_async("it is told", lambda count=count: len(gone()) == count)
        asked = [at for at, (verb, _request) in enumerate(played.asked) if verb in ("exec", "attach")]
        assert gone() == [played.replies[at].split(".", 5)[5] for at in asked[2:]]


async def test_a_page_without_a_path_is_not_taken_for_a_glob_s_end(backend: Backend) -> None:
    async with play(backend) as (played, box):
        pages: list[dict[str, Any]] = [
            {"paths": [], "more": True, "cursor": "a"},
            {"paths": ["b"], "more": True, "cursor": "c"},
            # Of a daemon that gives no cursor.
            {"paths": ["d"], "more": True},
            {"paths": [], "more": False},
        ]
        played.script = lambda verb, request: [pages.pop(0)] if verb == "glob" else []
        assert await box.files.glob("**/x") == ["b", "d"]
        asked = [
            {name: request[name] for name in ("cursor", "after") if name in request} for _, request in played.asked
        ]
        assert asked == [{"cursor": ""}, {"cursor": "a"}, {"cursor": "c"}, {"after": "d"}]


async def test_bytes_that_come_again_are_acknowledged_again(backend: Backend) -> None:
    async with play(backend) as (played, box):

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            # The end comes with the word that the first bytes have arrived.
            if verb == "credit":
                return [end(played.asked[0][1], stdout=b"d", totals=totals(4))]
            return [chunk(request, 0, b"abc"), chunk(request, 0, b"abc")]

        played.script = script
        assert (await box.exec("x")).stdout.bytes == b"abcd"
        credit = played.asked[1][1]
        assert (credit["received"], credit["until"]) == (3, 3 + 1024 * 1024)


async def test_output_that_stays_lost_is_told_not_hidden(backend: Backend) -> None:
    async with play(backend) as (played, box):
        played.script = lambda _verb, request: [end(request, totals=totals(10), stdout=b"short")]
        with pytest.raises(sandmesh.OutputGoneError) as caught:
            await box.exec("x")
        assert caught.value.started == "yes"


async def test_credit_grows_with_what_was_read(backend: Backend) -> None:
    async with play(backend) as (played, box):
        part = bytes(256 * 1024)

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "credit":
                return []
            return [chunk(request, i * len(part), part) for i in range(4)]

        played.script = script
        stream = box.stream("x")
        got = 0
        async for each in stream:
            got += len(each.data)
            if got == 4 * len(part):
                break
        credits = [request for verb, request in played.asked if verb == "credit"]
        while not credits:
            await asyncio.sleep(0.01)
            credits = [request for verb, request in played.asked if verb == "credit"]
        assert credits[0]["until"] - credits[0]["received"] == 1024 * 1024
        assert credits[0]["until"] > 1024 * 1024
        await stream.close()


async def test_errors_of_the_daemon_are_raised_with_what_they_say(backend: Backend) -> None:
    async with play(backend) as (played, box):
        error = {"code": "lease_lost", "message": "gone", "retryable": False, "started": "no", "sandbox": SANDBOX}
        played.script = lambda _verb, _request: [{"error": error}]
        with pytest.raises(sandmesh.LeaseLostError) as caught:
            await box.exec("x")
        assert caught.value.started == "no"
        assert isinstance(box.lost, sandmesh.LeaseLostError)
        asked = len(played.asked)
        with pytest.raises(sandmesh.LeaseLostError):
            await box.files.read("/x")
        assert len(played.asked) == asked


async def test_no_answer_in_time_is_a_deadline_error_and_the_command_unknown(backend: Backend) -> None:
    async with play(backend) as (played, box):
        played.script = lambda _verb, _request: []
        with pytest.raises(sandmesh.DeadlineError) as caught:
            await box.exec("x", timeout=0.1, grace=0)
        assert caught.value.started == "unknown"


async def test_a_sandbox_cannot_answer_for_another(backend: Backend) -> None:
    async with play(backend) as (played, box):
        link = box._box.caller.link
        stream = await link.open("sb-other", f"sbx.v1.acme.{SANDBOX}.x", b"\x80")
        await played.client.publish(f"rep.v1.acme.{SANDBOX}.ann.{stream.token}", b"\x80")
        await played.client.flush()
        await link._nc.flush()
        assert list(stream._items) == []
        stream.close()


async def test_garbage_from_a_sandbox_is_a_typed_error_and_nothing_hangs(backend: Backend) -> None:
    """Every frame damaged in every way that the seed finds: a result, or a SandmeshError; nothing else."""
    dice = random.Random(20)
    async with play(backend) as (played, box):
        good = codec.encode(end({"id": new_uuid7()}, stdout=b"some output", totals=totals(11)))

        def damage() -> bytes:
            body = bytearray(good)
            for _ in range(dice.randint(1, 6)):
                at = dice.randrange(len(body))
                kind = dice.random()
                if kind < 0.6:
                    body[at] = dice.randrange(256)
                elif kind < 0.8:
                    del body[at:]
                    body += b"\xc0"
                else:
                    body[at:at] = dice.randbytes(dice.randint(1, 9))
            return bytes(body)

        refused = 0
        for _ in range(400):
            body = damage()
            played.script = lambda _verb, _request, body=body: [body]
            try:
                await box.exec("x", timeout=5)
            except sandmesh.SandmeshError:
                refused += 1
            if box.lost is not None:
                box._box.lifeline.error = None
        assert refused > 200


def test_no_bytes_at_all_make_the_decoder_fail_in_another_way() -> None:
    dice = random.Random(7)
    messages = list(schema.contract()["messages"])
    for _ in range(30_000):
        body = dice.randbytes(dice.randint(0, 40))
        if dice.random() < 0.3:
            body = bytes([0x80 | dice.randint(1, 15)]) + body
        try:
            schema.check(dice.choice(messages), codec.decode(body))
        except sandmesh.InvalidRequestError as error:
            assert error.field
    for body in (
        b"\x91" * 100_000,
        b'{"a":' * 50_000,
        b"\x81\xa1a" * 50_000,
        b"\xdf\xff\xff\xff\xff",
        b"\x81\x91\x01\x01",
    ):
        with pytest.raises(sandmesh.InvalidRequestError):
            codec.decode(body)


def test_an_archive_cannot_leave_its_folder(tmp_path: Any) -> None:
    import io
    import os
    import tarfile

    def archive(*members: tuple[str, str | None]) -> io.BytesIO:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, link in members:
                info = tarfile.TarInfo(name)
                if link is not None:
                    info.type, info.linkname = tarfile.SYMTYPE, link
                    tar.addfile(info)
                else:
                    info.size = 3
                    tar.addfile(info, io.BytesIO(b"bad"))
        return out

    outside = tmp_path / "outside"
    outside.mkdir()
    for members in (
        [("../outside/x", None)],
        [("link", str(outside)), ("link/x", None)],
        [("a", ".."), ("a/outside/x", None)],
        [("link", "../outside"), ("link/y", "z")],
    ):
        target = tmp_path / "target"
        try:
            unpack_new(archive(*members), os.fsencode(target), 0o755, 0)
        except sandmesh.FileError:
            pass
        assert list(outside.iterdir()) == []
    with pytest.raises(sandmesh.FileError):
        unpack_new(io.BytesIO(b"no tar" * 1000), os.fsencode(tmp_path / "t2"), 0o755, 0)


def refusal(code: str, started: str | None = None) -> list[Any]:
    error = sandmesh.errors.ERROR_CLASSES[code]("as the test says", started=started)  # type: ignore[arg-type]
    return [{"error": error.to_wire()}]


MEANT = {
    "invalid_request": "no",
    "unknown_verb": "no",
    "too_large": "no",
    "permission_denied": "no",
    "conflict": "no",
    "unsupported": "no",
    "not_found": "no",
    "lease_lost": "no",
    "internal": "unknown",
    "unknown_command": "unknown",
    "provider_failed": "unknown",
}
"""What the answer to the only question means, where it does not say so itself."""


async def test_a_refusal_says_that_nothing_was_started_and_no_other_answer_does(backend: Backend) -> None:
    async with play(backend) as (played, box), backend.connect() as mesh:
        for code, started in MEANT.items():
            played.script = lambda _verb, _request, code=code: refusal(code)  # type: ignore[misc]
            for way in ("exec", "start", "stream"):
                # A handle of its own each time: one that is lost stays so.
                command = getattr(mesh.sandbox(box.id), way)("true")
                with pytest.raises(sandmesh.SandmeshError) as caught:
                    await (command.wait() if way == "stream" else command)
                assert (way, caught.value.code, caught.value.started) == (way, code, started)


async def test_a_command_that_has_written_is_known_to_have_run_whatever_comes_then(backend: Backend) -> None:
    async with play(backend) as (played, box):

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            # Bytes are missing, so that it is asked for again.
            return [chunk(request, 0, b"a"), chunk(request, 5, b"b")] if verb == "exec" else refusal("lease_lost", "no")

        played.script = script
        with pytest.raises(sandmesh.LeaseLostError) as caught:
            await box.exec("true")
        assert caught.value.started == "yes"


async def test_the_refusal_of_one_command_is_not_told_of_another_that_runs(backend: Backend) -> None:
    async with play(backend) as (played, box):
        played.script = lambda _verb, request: [chunk(request, 0, b"a")]
        running = aiter(box.stream("sleep 600"))
        assert (await anext(running)).data == b"a"
        played.script = lambda _verb, _request: refusal("lease_lost", "no")
        with pytest.raises(sandmesh.LeaseLostError) as caught:
            await box.exec("true")
        assert caught.value.started == "no"
        with pytest.raises(sandmesh.LeaseLostError) as caught:
            await anext(running)
        assert caught.value.started == "yes"


async def test_a_small_write_has_a_name_by_which_it_is_done_once_and_a_chmod_is_asked_once(backend: Backend) -> None:
    async with play(backend) as (played, box):
        played.script = lambda verb, request: [{"received": 3, "done": True}]
        assert await box.files.write("a", "abc") == 3
        await box.files.chmod("a", 0o700)
        (_, write), _ = played.asked
        assert (write["data"], write["offset"], write["last"]) == (b"abc", 0, True)
        assert len(write["transfer"]) == 36
        assert "write" in caller.REPEATABLE and "attributes" not in caller.REPEATABLE
