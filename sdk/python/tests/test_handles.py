"""Commands by id, terminals, bursts, events and losses."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle

import pytest
from conftest import Backend, until_async
from test_arguments import SPEC

import sandmesh
from sandmesh import Canceled, Exited, NotStarted, closing
from sandmesh._wire import renewal
from sandmesh._wire.ids import new_uuid7
from sandmesh._wire.losses import hear_losses
from sandmesh._wire.subjects import run_event_subject


async def test_a_started_command_outlives_its_client_and_is_followed_by_its_id(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with local.connect() as other:
            line = "read a; echo got $a; read b; echo got $b >&2; exit 3"
            started = await other.sandbox(box.id).start(line, stdin_open=True)
            assert started.pid
            await started.stdin.write("one\n")
        command = box.command(started.id)
        async with command.attach() as output:
            assert (await anext(aiter(output))).text == "got one\n"
        assert [each.running for each in await box.commands()] == [True], "leaving the output leaves the command"
        waiting = asyncio.ensure_future(command.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await command.stdin.write("two\n")
        result = await command.wait()
        assert (result.outcome, result.stdout.text, result.stderr.text) == (Exited(3), "got one\n", "got two\n")
        assert (await command.signal("SIGINT"), await command.cancel()) == (False, False)
        missing = await (await box.start(["no-such-program"])).wait()
        assert isinstance(missing.outcome, NotStarted)
        fed = await box.start("cat", stdin=[b"a" * 300_000, "b"])
        assert len((await fed.wait()).stdout) == 300_001
        with pytest.raises(sandmesh.UnknownCommandError):
            await box.command(new_uuid7()).wait()
        with pytest.raises(sandmesh.InvalidRequestError):
            box.command("x")


async def test_what_is_cancelled_leaves_no_shell_and_no_gap_in_stdin(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:

        async def open_shell() -> None:
            await box.shell()

        for wait_s in (0, 0, 0.001, 0.002, 0.004, 0.008):
            opening = asyncio.ensure_future(open_shell())
            await asyncio.wait({opening}, timeout=wait_s)
            if opening.done():
                break
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening

        started = await box.start("until [ -e /tmp/go ]; do sleep 0.05; done; tail -c 12", stdin_open=True)
        writing = asyncio.ensure_future(started.stdin.write(bytes(1024 * 1024)))
        await asyncio.wait({writing}, timeout=0.2)
        assert not writing.done()
        writing.cancel()
        behind = asyncio.ensure_future(started.stdin.write("and then it!"))
        await box.files.write("/tmp/go", "")
        await behind
        await started.stdin.close()
        assert (await started.wait()).stdout.text == "and then it!"
        # By now each of them would be open.
        while await box.sessions():
            await asyncio.sleep(0.02)


async def test_a_terminal_is_one(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with await box.terminal(["bash", "--norc", "-i"], rows=30, cols=100, term="dumb") as terminal:
            await terminal.write("stty size; tty\n")
            seen = ""
            async for chunk in terminal.output:
                seen += chunk.text
                if "30 100" in seen and "/dev/pts" in seen:
                    break
        async with await box.terminal("stty size; read x; stty size; exit 5") as terminal:
            assert "24 80" in (await anext(aiter(terminal.output))).text
            await terminal.resize(10, 20)
            await terminal.write("\n")
            rest = "".join([chunk.text async for chunk in terminal.output])
            assert "10 20" in rest
            assert (await terminal.wait()).outcome == Exited(5)
        async with await box.terminal() as shell:
            pass
        assert isinstance((await shell.command.wait()).outcome, Canceled)
        for options, field in [({"rows": 0}, "rows"), ({"cols": "x"}, "cols"), ({"term": ""}, "term")]:
            with pytest.raises(sandmesh.InvalidRequestError) as caught:
                await box.terminal("x", **options)  # type: ignore[arg-type]
            assert caught.value.field == field


async def test_a_terminal_that_is_to_be_hung_up_ends_with_its_client_and_lives_on_under_one_that_is_quiet(
    local: Backend,
) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:

        async def opened(other: sandmesh.Mesh) -> sandmesh.Terminal:
            return await other.sandbox(box.id).terminal(["bash", "--norc"], hang_up_after=0.9)

        async with local.connect() as quiet_one:
            quiet = await opened(quiet_one)
            async with local.connect() as lost_one:
                lost = await opened(lost_one)
            # Of itself nothing ends there: the shell waits for a line.
            outcome = (await box.command(lost.command.id).wait()).outcome
            assert isinstance(outcome, sandmesh.Signaled) and outcome.signal == "SIGHUP"
            running = {each.id: each.running for each in await box.commands()}
            assert running[quiet.command.id]
            await quiet.close()
        with pytest.raises(sandmesh.InvalidRequestError) as caught:
            await box.terminal("x", hang_up_after=-1)
        assert caught.value.field == "hang_up_after"


async def test_a_run_may_be_the_connections_own_by_name_and_a_lease_an_acquires(backend: Backend) -> None:
    async with backend.connect(run="named") as mesh:
        box = await mesh.acquire("host", lease=2)
        assert (mesh.default_run, box.run) == ("named", "named")
        async with backend.connect() as other:
            beside = await other.acquire("host", run="named")
            await mesh.close()
            assert backend.made == [beside.id], "of a run that others share only what was acquired here is released"
            assert beside.grant is not None and beside.grant.warnings == ()
    with pytest.raises(sandmesh.InvalidRequestError) as caught:
        await backend.connect(run="No")
    assert caught.value.field == "run"


async def test_what_never_was_is_only_released_where_that_is_fine(backend: Backend) -> None:
    async with backend.connect() as mesh:
        assert await mesh.release(sandbox="sb-never") == 0
        with pytest.raises(sandmesh.NotFoundError):
            await mesh.release(sandbox="sb-never", must_exist=True)


def test_commands_and_terminals_without_await(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        command = box.start("cat; exit 4", stdin_open=True)
        command.stdin.write("x")
        command.stdin.close()
        assert command.wait().stdout.text == "x"
        assert box.command(command.id).attach().wait().outcome == Exited(4)
        with box.terminal("read x; echo got $x") as terminal:
            terminal.resize(5, 5)
            terminal.write("y\n")
            assert "got y" in "".join(chunk.text for chunk in terminal.output)
        assert b"".join(box.files.read_parts("/proc/self/cmdline")) != b""
        box.files.mkdir("/tmp/w")
        changes = box.files.watch("/tmp/w")
        box.start("while :; do date > /tmp/w/f; sleep 0.05; done")
        assert next(changes).path == "f"
        changes.close()  # type: ignore[attr-defined]


async def test_a_burst_comes_whole_or_not_at_all(backend: Backend) -> None:
    async with backend.connect() as mesh:
        boxes = await mesh.acquire_many(30, "host", at_once=7)
        assert {box.id for box in boxes} == set(backend.made)
        async with mesh.run() as run:
            assert len(await run.acquire_many(5, "host")) == 5
            assert len(await run.list()) == 5
        assert len(backend.made) == 30
        assert await mesh.acquire_many(0, "host") == []
        wrong = [("count", -1), ("at_once", 0), ("at_least", "x"), ("at_least", 2)]
        for field, value in wrong:
            with pytest.raises(sandmesh.InvalidRequestError) as caught:
                await mesh.acquire_many(**{"count": 1, "image": "host", field: value})  # type: ignore[arg-type]
            assert caught.value.field == field
        backend.order("script", boot="never")
        with pytest.raises(sandmesh.AcquireTimeoutError):
            await mesh.acquire_many(3, "host", timeout=0.5)
        task = asyncio.ensure_future(mesh.acquire_many(4, "host", at_once=2))
        await until_async("two are being made", lambda: len(backend.made) >= 32)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_async("these are reclaimed", lambda: len(backend.made) == 30)
    assert backend.made == []


async def test_losses_are_told_as_they_happen_and_events_too(backend: Backend) -> None:
    async with backend.connect() as mesh, backend.connect() as other:
        box = await mesh.acquire("host")
        told: list[str | None] = []
        box.on_lost(lambda error: told.append(error.reason))
        events = mesh.events(sandbox=box.id, what=["released"])
        first = asyncio.ensure_future(anext(events))
        await until_async("it listens", lambda: len(mesh._caller.link._nc._subs) > 5)
        await mesh._caller.link._nc.flush()
        await other.release(sandbox=box.id)
        event = await first
        assert (event.what, event.sandbox, event.run) == ("released", box.id, box.run)
        await until_async("it is told", lambda: told != [] and box.lost is not None)
        assert mesh._tenure.held == []
        await events.aclose()
        with pytest.raises(sandmesh.InvalidRequestError):
            await anext(mesh.events(what=["nonsense"]))  # type: ignore[list-item]
        following = asyncio.ensure_future(anext(mesh.run("quiet").events()))
        await asyncio.sleep(0)
        await mesh.close()
        with pytest.raises(sandmesh.ConnectionError):
            await following


async def test_an_event_of_a_newer_pool_or_none_at_all_is_passed_over_in_silence_and_the_next_one_heard(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend.connect() as mesh:
        link = mesh._caller.link
        losses: list[tuple[str, str]] = []
        stop = hear_losses(mesh._caller, "newer", lambda *loss: losses.append(loss), {})
        events = mesh.run("newer").events()
        following = asyncio.ensure_future(anext(events))
        await until_async("it listens", lambda: len(link._nc._subs) > 5)
        await link._nc.flush()
        lost = {"what": "lost", "at": "2026-01-01T00:00:00.000Z", "run": "newer", "sandbox": "sb-1", "reason": "gone"}
        caplog.set_level(logging.DEBUG, "sandmesh")
        for text in ("nonsense", "{", '{"what":"lost"}', json.dumps({**lost, "what": "melted"}), json.dumps(lost)):
            backend.order("publish", subject=run_event_subject("acme", "newer", "lost"), text=text)
        await until_async("the loss is heard", lambda: losses != [])
        assert losses == [("sb-1", "gone")]
        assert (await following).sandbox == "sb-1"
        assert caplog.records == []
        stop()
        await events.aclose()


async def test_a_detached_sandbox_is_neither_released_nor_renewed(backend: Backend) -> None:
    mesh = await backend.connect(lease=1)
    async with await mesh.acquire("host") as kept:
        kept.detach()
    other = await mesh.acquire("host")
    await mesh.close()
    assert backend.made == [kept.id] and other.id != kept.id
    await until_async("its lease lapses", lambda: backend.made == [])


async def test_only_an_operator_drains_and_others_are_told_at_once(backend: Backend) -> None:
    credentials = backend.order("operator_credentials")["credentials"]
    async with backend.connect() as mesh, sandmesh.connect(backend.url, credentials) as root:
        with pytest.raises(sandmesh.PermissionDeniedError, match="only an operator may drain") as refused:
            await mesh.drain(release_all=True)
        assert refused.value.reason == "publish"
        assert (await root.drain())["draining"] is True
        try:
            with pytest.raises(sandmesh.DrainingError):
                await mesh.acquire("host", timeout=2)
        finally:
            assert (await root.drain(on=False))["draining"] is False


async def test_a_grant_that_is_confirmed_too_late_is_asked_for_anew(backend: Backend) -> None:
    async with backend.connect() as mesh:
        asked: list[str] = []
        pool = mesh._caller.pool

        async def late(verb: str, request: dict[str, object], **options: object) -> dict[str, object]:
            asked.append(verb)
            if verb == "confirm" and asked.count("confirm") == 1:
                raise sandmesh.NotFoundError("the grant was taken back")
            return await pool(verb, request, **options)  # type: ignore[arg-type]

        mesh._caller.pool = late  # type: ignore[method-assign, assignment]
        box = await mesh.acquire("host")
        assert asked.count("acquire") == 2 and box.grant is not None
        asked.clear()
        with pytest.raises(sandmesh.NotFoundError):
            await mesh.acquire("host", id=new_uuid7())  # its own id was taken back: nothing to ask with
        assert asked.count("acquire") == 1


def test_renewals_of_a_burst_spread_out() -> None:
    times = [renewal.next_renewal(30) for _ in range(1000)]
    assert 8 <= min(times) < 8.5 and 9.5 < max(times) <= 10


async def test_closing_without_a_server_is_over_in_time_and_names_what_is_left(
    own_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "ABSENT_S", 3)
    mesh = await own_backend.connect()
    boxes = await mesh.acquire_many(3, "host")
    own_backend.order("kill_server")
    started = asyncio.get_running_loop().time()
    releasing = asyncio.ensure_future(boxes[0].release())
    with pytest.raises(sandmesh.ConnectionError):
        await releasing
    assert asyncio.get_running_loop().time() - started < 25
    started = asyncio.get_running_loop().time()
    with pytest.raises(sandmesh.ConnectionError) as caught:
        await mesh.close()
    assert asyncio.get_running_loop().time() - started < 25, "3 s, and what a loaded machine adds"
    for box in boxes:
        assert box.id in str(caught.value)
    assert "3 sandboxes could not be released" in str(caught.value)
    own_backend.order("restart_server")


def test_closing_without_a_server_in_the_sync_twin(own_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "ABSENT_S", 3)
    with pytest.raises(sandmesh.ConnectionError, match="could not be released"):
        with own_backend.connect_sync() as mesh:
            mesh.acquire("host")
            own_backend.order("kill_server")
    own_backend.order("restart_server")


def test_the_options_of_a_spec_are_those_that_are_tested() -> None:
    known = set(sandmesh.SpecOptions.__annotations__)
    assert known <= set(SPEC)


async def test_results_and_errors_are_pickled_and_handles_say_why_not(simulated: Backend) -> None:
    async with simulated.connect() as mesh, await mesh.acquire("host") as box:
        result = await box.exec(["echo", "a"])
        assert pickle.loads(pickle.dumps(result)).stdout.text == result.stdout.text
        with pytest.raises(sandmesh.NotFoundError) as caught:
            await mesh.sandbox("sb-none").ping()
        again = pickle.loads(pickle.dumps(caught.value))
        assert (type(again), str(again), again.sandbox) == (sandmesh.NotFoundError, str(caught.value), "sb-none")
        handles = (mesh, mesh.run("r"), box, box.files, box.command(result.id), box.stream("true"))
        for handle in handles:
            for away in (pickle.dumps, copy.copy):
                with pytest.raises(
                    TypeError, match=f"a {type(handle).__name__} belongs to its connection.*pass the id"
                ):
                    away(handle)


def test_a_handle_of_sync_says_why_it_is_not_pickled(simulated: Backend) -> None:
    with simulated.connect_sync() as mesh, mesh.acquire("host") as box:
        for handle in (mesh, mesh.run("r"), box, box.files):
            with pytest.raises(TypeError, match="belongs to its connection"):
                pickle.dumps(handle)
