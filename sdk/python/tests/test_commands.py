"""Commands, streams, files and shells in real sandboxes, through the real daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from conftest import Backend, until_async

import sandmesh
from sandmesh import Canceled, Exited, NotStarted, OutputLimit, Signaled, TimedOut
from sandmesh._wire.ids import new_uuid7


async def test_a_virtual_sandbox_answers_like_a_real_one(simulated: Backend) -> None:
    async with simulated.connect() as mesh:
        boxes = await asyncio.gather(*(mesh.acquire("any") for _ in range(20)))
        results = await asyncio.gather(*(box.exec(["echo", box.id]) for box in boxes))
        assert [result.stdout.text for result in results] == [f"{box.id}\n" for box in boxes]
    assert simulated.made == []


async def test_what_a_command_did_is_its_outcome(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        result = await box.exec("printf '\\377\\000\\r\\n'; echo err >&2; exit 3")
        assert result.outcome == Exited(3)
        assert (result.exit_code, result.ok, result.stdout.bytes) == (3, False, b"\xff\x00\r\n")
        assert result.stderr.text == "err\n"
        assert result.duration > 0 and result.pid and not result.truncated
        assert pickle.loads(pickle.dumps(result)).stdout.bytes == result.stdout.bytes
        with pytest.raises(sandmesh.CommandFailedError) as failed:
            result.check()
        assert failed.value.result is result and "exited 3: err" in str(failed.value)
        with pytest.raises(sandmesh.CommandFailedError):
            await box.exec(["false"], check=True)
        assert (await box.exec(["true"])).check().ok
        assert (await box.exec("exit 137")).outcome == Exited(137)
        assert (await box.exec("kill -9 $$")).outcome == Signaled("SIGKILL", False)
        missing = (await box.exec(["no-such-program-here"])).outcome
        assert isinstance(missing, NotStarted) and missing.reason == "no_such_program"
        nowhere = (await box.exec("true", cwd="/no/such/folder")).outcome
        assert isinstance(nowhere, NotStarted) and nowhere.reason == "no_such_cwd"
        late = await box.exec("echo so far; sleep 60", timeout=0.5)
        assert isinstance(late.outcome, TimedOut) and late.outcome.after_ms == 500
        assert late.stdout.text == "so far\n"


async def test_blank_lines_cr_lf_and_u2028_go_both_ways_as_they_are(local: Backend) -> None:
    odd = "\n\nfirst\r\n\n\u2028second\u2029\u0085\n\n  last"
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        assert (await box.exec(["cat"], stdin=odd)).stdout.text == odd
        assert (await box.exec(["printf", "%s", odd])).stdout.text == odd
        assert (await box.exec(f"printf %s '{odd}'")).stdout.text == odd
        assert (await box.exec('printf %s "$ODD"', env={"ODD": odd})).stdout.text == odd
        async with box.stream("cat", stdin=odd) as stream:
            assert "".join([chunk.text async for chunk in stream]) == odd
        async with box.shell() as session:
            assert (await session.exec(f"printf %s '{odd}'")).stdout.text == odd
            assert (await session.exec("cat", stdin=odd)).stdout.text == odd


async def test_options_reach_the_command(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host", env={"FROM_SPEC": "1"}) as box:
        result = await box.exec(
            "pwd; echo $A-$FROM_SPEC; cat; umask", cwd="/", env={"A": "x"}, stdin="in\n", umask=0o77
        )
        assert result.stdout.text == "/\nx-1\nin\n0077\n"
        merged = await box.exec("echo a; echo b >&2; echo c", merge=True)
        assert (merged.stdout.text, merged.stderr.text) == ("a\nb\nc\n", "")
        cut = await box.exec("head -c 100000 /dev/zero", output_limit="1KiB")
        assert cut.truncated and len(cut.stdout) == 1024 and cut.stdout.total_bytes == 100_000
        tail = await box.exec("seq 1 20000", output_limit=1000, keep="tail")
        assert tail.stdout.text.endswith("20000\n") and len(tail.stdout) <= 1000
        failed = await box.exec("yes", output_limit=1000, keep="fail")
        assert isinstance(failed.outcome, OutputLimit)
        for options, field in [({"timeout": "1"}, "timeout"), ({"shell": 1}, "shell"), ({"umask": 9999}, "umask")]:
            with pytest.raises(sandmesh.InvalidRequestError) as caught:
                await box.exec("true", **options)
            assert caught.value.field == field


async def test_an_id_runs_once(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        command_id = new_uuid7()
        line = "echo x >> /tmp/once; wc -l < /tmp/once"
        results = await asyncio.gather(*(box.exec(line, id=command_id) for _ in range(5)))
        assert [result.stdout.text.strip() for result in results] == ["1"] * 5
        assert (await box.exec(line, id=command_id)).stdout.text.strip() == "1"
        assert (await box.attach(command_id).wait()).outcome == Exited(0)
        with pytest.raises(sandmesh.UnknownCommandError) as caught:
            await box.attach(new_uuid7()).wait()
        assert caught.value.started == "unknown"


async def test_much_output_and_much_input_arrive_whole(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        big = os.urandom(5_000_000)
        assert (await box.exec("cat", stdin=big)).stdout.bytes == big

        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, len(big), 300_001):
                yield big[at : at + 300_001]

        assert (await box.exec("cat", stdin=parts())).stdout.bytes == big

        def broken() -> object:
            yield b"x"
            raise ValueError("the source broke")

        with pytest.raises(sandmesh.CanceledError):
            await box.exec("cat", stdin=broken())  # type: ignore[arg-type]
        # What it raises may be of our own classes, as where it is another sandbox's file.
        with pytest.raises(sandmesh.CanceledError) as caught:
            await box.exec("cat", stdin=box.files.read_parts("/nothing/there"))
        assert caught.value.field == "stdin"
        # Half of an input is not taken for whole.
        started = await box.start("cat", stdin=broken())  # type: ignore[arg-type]
        assert isinstance((await started.wait()).outcome, sandmesh.Canceled)


async def test_a_stream_comes_as_it_is_written_and_text_is_never_split(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with box.stream("printf '\\303'; sleep 0.2; printf '\\274\\n'; echo err >&2") as stream:
            chunks = [chunk async for chunk in stream]
        assert "".join(chunk.text for chunk in chunks if chunk.stream == "stdout") == "ü\n"
        assert b"".join(chunk.data for chunk in chunks if chunk.stream == "stderr") == b"err\n"
        assert stream.end is not None and (await stream.wait()).outcome == Exited(0)
        total = 0
        # More than the 8 MiB that are held of a command whose output nobody reads as it comes.
        async for chunk in box.stream("head -c 20000000 /dev/zero"):
            assert chunk.offset == total
            total += len(chunk.data)
        assert total == 20_000_000


async def test_a_slow_reader_slows_the_command_down(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        line = "for i in $(seq 100); do head -c 100000 /dev/zero; echo $i > /tmp/progress; done"
        async with box.stream(line, output_limit="1GiB") as stream:
            async for _chunk in stream:
                break
            await until_async("it wrote something", lambda: True)
            await asyncio.sleep(1)
            # 1 MiB of credit, and the pipe's and the daemon's own buffers.
            assert int(await box.files.read_text("/tmp/progress")) < 60
            assert (await stream.cancel()) is True
            assert isinstance((await stream.wait()).outcome, Canceled)


@pytest.mark.limit(30)
async def test_streams_that_were_left_or_are_not_read_on_keep_no_other_waiting(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        # The last of them would have waited for a minute: those before used up what may be on its way at once.
        for _left in range(21):
            async with box.stream("yes") as stream:
                assert (await anext(aiter(stream))).data
        async with contextlib.AsyncExitStack() as held, local.connect() as other:
            for _held in range(20):
                await anext(aiter(await held.enter_async_context(box.stream("yes"))))
            for each in (box, other.sandbox(box.id)):
                assert len((await each.exec("head -c 6000000 /dev/zero")).stdout) == 6_000_000


async def test_what_a_source_of_stdin_has_given_reaches_the_command_while_the_source_waits(local: Backend) -> None:
    answers: asyncio.Queue[str] = asyncio.Queue()
    heard = []

    async def talk() -> AsyncIterator[str]:
        for word in ("a", "b", "c"):
            yield f"{word}\n"
            heard.append(await answers.get())

    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with box.stream("cat", stdin=talk(), timeout=20) as stream:
            async for chunk in stream:
                answers.put_nowait(chunk.text)
        command = await box.start("cat", stdin=talk(), timeout=20)
        async for chunk in command.attach():
            answers.put_nowait(chunk.text)
    assert heard == 2 * ["a\n", "b\n", "c\n"]


async def test_stdin_is_written_while_a_command_runs(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with box.stream("while read line; do echo got $line; done", stdin_open=True) as stream:
            await stream.write_stdin("one\n")
            assert (await anext_text(stream)) == "got one\n"
            await stream.write_stdin(b"two\n")
            assert (await anext_text(stream)) == "got two\n"
            await stream.close_stdin()
            assert (await stream.wait()).ok
            with pytest.raises(sandmesh.SessionClosedError):
                await stream.write_stdin("three")


async def anext_text(stream: sandmesh.CommandStream) -> str:
    async for chunk in stream:
        return chunk.text
    raise AssertionError("the stream ended")


async def gone(box: sandmesh.Sandbox, what: str) -> None:
    deadline = time.monotonic() + 15
    while (await box.exec(["pgrep", "-f", what])).ok:
        assert time.monotonic() < deadline, f"{what} still runs"
        await asyncio.sleep(0.1)


async def test_cancelling_ends_the_command_in_the_sandbox(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        task = asyncio.create_task(box.exec(["sleep", "4321"]))
        while not any(command.running for command in await box.commands()):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(box, "sleep 4321")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(box.exec("sleep 4322"), 0.5)
        await gone(box, "sleep 4322")
        async for _chunk in (stream := box.stream("echo x; sleep 4323")):
            break
        await stream.close()
        await gone(box, "sleep 4323")
        async with box.stream("trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.1; done") as running:
            assert await anext_text(running) == "ready\n"
            for name in ("SIGNOPE", "SIGRTMIN+31", "INT", ""):
                for signal in (running.signal, box.command(running.id).signal, partial(box.signal, running.id)):
                    with pytest.raises(sandmesh.InvalidRequestError) as caught:
                        await signal(name)
                    assert caught.value.field == "signal"
            assert await box.signal(running.id, "SIGINT") is True
            assert (await running.wait()).outcome == Exited(7)


async def test_a_released_sandbox_ends_its_commands_with_a_typed_error(local: Backend) -> None:
    async with local.connect() as mesh, local.connect() as other:
        box = await mesh.acquire("host")
        task = asyncio.create_task(box.exec("sleep 60"))
        while not any(command.running for command in await box.commands()):
            await asyncio.sleep(0.02)
        await other.release(sandbox=box.id)
        with pytest.raises(sandmesh.SandboxLostError) as caught:
            await task
        # It wrote nothing, so that nobody told that it had started.
        assert (caught.value.sandbox, caught.value.started) == (box.id, "unknown")
        assert box.lost is not None


async def test_folders_go_up_and_down_with_modes_and_links(local: Backend, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "sub" / "run.sh").chmod(0o755)
    (source / "big").write_bytes(os.urandom(1_000_000))
    (source / "link").symlink_to("sub/run.sh")
    (source / "out").symlink_to("/etc/hostname")
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.files.upload(source, "/tmp/tree")
        assert (await box.exec(["/tmp/tree/link"])).stdout.text == "ran\n"
        await box.files.download("/tmp/tree", tmp_path / "back")
        await box.files.upload(source / "sub" / "run.sh", "/tmp/one/run.sh")
        assert (await box.files.stat("/tmp/one/run.sh")).mode == 0o755
        await box.files.download("/tmp/one/run.sh", tmp_path / "one" / "run.sh")
    back = tmp_path / "back"
    assert (back / "big").read_bytes() == (source / "big").read_bytes()
    assert (back / "sub" / "empty").is_dir() and os.readlink(back / "link") == "sub/run.sh"
    assert os.readlink(back / "out") == "/etc/hostname"
    assert (back / "sub" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "one" / "run.sh").stat().st_mode & 0o777 == 0o755


async def test_a_shell_remembers(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with box.shell("main", cwd="/tmp") as shell:
            await shell.exec("cd /; export A=kept; f() { echo function $A; }")
            assert (await shell.exec("pwd; f")).stdout.text == "/\nfunction kept\n"
            assert [session.session for session in await box.sessions()] == ["main"]
            assert (await shell.exec("(exit 4)")).outcome == Exited(4)
            with contextlib.suppress(sandmesh.IncompleteCommandError):
                assert not (await shell.exec("echo 'open")).ok
            assert (await shell.exec("echo lives")).stdout.text == "lives\n"
        assert await box.sessions() == []
        with pytest.raises(sandmesh.SessionClosedError):
            await shell.exec("true")


async def test_a_blocked_loop_does_not_lose_a_command(local: Backend) -> None:
    async with local.connect(lease=2) as mesh, await mesh.acquire("host") as box:
        task = asyncio.create_task(box.exec("sleep 1; echo done", timeout=2))
        await asyncio.sleep(0.1)
        time.sleep(9)  # noqa: ASYNC251
        assert (await task).stdout.text == "done\n"


async def test_a_restarted_broker_loses_no_output(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        line = "for i in $(seq 60); do echo $i; sleep 0.05; done"
        task = asyncio.create_task(box.exec(line, timeout=60))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(local.order, "kill_server")
        await asyncio.sleep(1)
        await asyncio.to_thread(local.order, "restart_server")
        assert (await task).stdout.text == "".join(f"{i}\n" for i in range(1, 61))


def test_the_sync_twin(local: Backend, tmp_path: Path) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        assert box.exec("echo hi", timeout=10).stdout.text == "hi\n"
        with box.stream("seq 3") as stream:
            assert "".join(chunk.text for chunk in stream) == "1\n2\n3\n"
            assert stream.wait().ok
        box.files.write("/tmp/x", "y")
        assert box.files.read_text("/tmp/x") == "y"
        box.files.download("/tmp/x", tmp_path / "x")
        assert box.info()["sandbox"] == box.id
        with pytest.raises(sandmesh.FileError):
            box.files.read("/none")


def test_a_shell_of_the_sync_twin(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box, box.shell() as shell:
        shell.exec("cd /tmp")
        assert shell.exec("pwd").stdout.text == "/tmp\n"
