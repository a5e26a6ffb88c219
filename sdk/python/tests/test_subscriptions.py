"""A connection may have 64 subscriptions, and any number of runs; what the server refuses reaches who asked."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Backend, until_async
from test_cuts import cuttable_mesh
from test_missed import away

import sandmesh
from sandmesh._wire.event_hub import MAX_NARROW, Listener
from sandmesh._wire.link import Link
from sandmesh._wire.subjects import run_event_subject

# What MAX_NARROW makes of it.
BOUND = 46
MAX_SUBSCRIPTIONS = 64


def count(link: Link) -> int:
    return len(link._nc._subs)


async def test_of_100_runs_of_one_connection_each_loss_and_event_is_told_once(backend: Backend) -> None:
    async with backend.connect() as mesh, backend.connect() as other:
        runs = [mesh.run(f"run-{i}") for i in range(100)]
        boxes = await asyncio.gather(*(run.acquire("host") for run in runs))
        held, by_id, read = Counter[str](), Counter[str](), Counter[str | None]()

        def counting(told: Counter[str], sandbox: str) -> Callable[[object], None]:
            return lambda _error: told.update([sandbox])

        handles = [mesh.sandbox(box.id) for box in boxes]
        for box, handle in zip(boxes, handles, strict=True):
            box.on_lost(counting(held, box.id))
            handle.on_lost(counting(by_id, box.id))

        async def reading(events: Any) -> None:
            async for event in events:
                read.update([event.sandbox])

        readers = [asyncio.ensure_future(reading(each.events(what=["released"]))) for each in (*runs, mesh)]
        await until_async("all is subscribed", lambda: count(mesh._caller.link) == BOUND)
        # The handles by id have asked for their runs, and been told.
        for _ in range(3):
            await asyncio.gather(*(mesh.list(run=run.id) for run in runs))
        await asyncio.gather(*(other.release(sandbox=box.id) for box in boxes))
        await until_async("all are told", lambda: len(held) == len(by_id) == 100 and read.total() >= 200)
        assert count(mesh._caller.link) <= BOUND
        await mesh.list()
        once = Counter(box.id for box in boxes)
        # By the reader of its run, and by that of the mesh.
        assert (held, by_id, read) == (once, once, once + once)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await until_async("nothing is heard", lambda: count(mesh._caller.link) == 1)


class _Heard:
    """Listens to a run, or to all."""

    def __init__(self, mesh: sandmesh.Mesh, run: str | None, told: int) -> None:
        self.run = run
        self.told = told
        self.numbers: list[tuple[str, int]] = []
        self.stop = mesh._caller.news.events.hear(run, Listener(self._tell, self._refused))

    def _tell(self, event: dict[str, Any]) -> None:
        self.numbers.append((event["run"], int(event["sandbox"][3:])))

    def _refused(self, error: Exception) -> None:
        raise AssertionError(error)

    @property
    def newest(self) -> int:
        return self.numbers[-1][1] if self.numbers else 0


async def test_while_runs_come_and_go_around_the_bound_each_listener_hears_all_of_its_own_once(
    backend: Backend,
) -> None:
    names = [f"r-{i}" for i in range(2 * MAX_NARROW)]
    chance = random.Random(1)
    told = 0

    async def tell() -> None:
        nonlocal told
        told += 1
        wire = {"what": "lost", "at": "2026-01-01T00:00:00.000Z", "sandbox": f"sb-{told}"}
        messages = [
            {"subject": run_event_subject("acme", run, "lost"), "text": json.dumps({**wire, "run": run})}
            for run in names
        ]
        await asyncio.to_thread(backend.order, "publish_all", messages=messages)

    def leave(heard: _Heard) -> None:
        heard.stop()
        of = names if heard.run is None else [heard.run]
        expected = [(run, number + 1) for number in range(told) for run in of]
        # What was on its way when it joined may be heard or not: the beginning of it.
        assert heard.numbers == expected[len(expected) - len(heard.numbers) :]
        assert len(heard.numbers) >= (told - heard.told) * len(of)

    async with backend.connect() as mesh:
        listening: list[_Heard] = []
        for _ in range(60):
            # Events flow while these join, and from the answer on they hear all.
            telling = asyncio.ensure_future(tell())
            for _ in range(chance.randint(1, 4)):
                await asyncio.sleep(chance.random() / 200)
                run = None if chance.random() < 0.1 else chance.choice(names)
                listening.append(_Heard(mesh, run, told))
            await telling
            await mesh.list()
            await tell()
            await until_async("all are told", lambda: all(each.newest == told for each in listening))
            await mesh.list()
            for _ in range(8 if len(listening) > 24 else chance.randint(0, 3)):
                if listening:
                    leave(listening.pop(chance.randrange(len(listening))))
            assert count(mesh._caller.link) <= 1 + MAX_NARROW + 1
        for heard in listening:
            leave(heard)
        await until_async("nothing is heard", lambda: count(mesh._caller.link) == 1)


async def test_runs_beyond_those_with_subscriptions_of_their_own_share_one_as_long_as_one_of_them_is_heard(
    backend: Backend,
) -> None:
    async with backend.connect() as mesh:
        link, hub = mesh._caller.link, mesh._caller.news.events
        listener = Listener(lambda _event: None, lambda _error: None)

        async def heard(expected: int) -> None:
            await until_async(f"there are {expected}", lambda: count(link) == expected + 1)

        stops = [hub.hear(f"r-{i // 2}", Listener(lambda _event: None, lambda _error: None)) for i in range(24)]
        await heard(MAX_NARROW + 1)
        for stop in stops[:2]:
            stop()
        await heard(MAX_NARROW)
        stops.append(hub.hear("r-new", listener))
        await heard(MAX_NARROW + 1)
        for stop in stops[-9:]:
            stop()
        await heard(MAX_NARROW - 1)
        for stop in stops:
            stop()
        await heard(0)


async def test_runs_that_go_and_others_that_come_in_their_place_are_never_more_than_may_be(backend: Backend) -> None:
    async with backend.connect() as mesh:
        refused: list[Exception] = []
        hub = mesh._caller.news.losses
        stops: list[Callable[[], None]] = []
        for turn in range(10):
            for stop in stops:
                stop()
            stops = [hub.hear(f"r-{turn}-{i}", Listener(lambda _: None, refused.append)) for i in range(2 * MAX_NARROW)]
        await mesh.list()
        assert (refused, count(mesh._caller.link)) == ([], 1 + 4 * (MAX_NARROW + 1))


class _Subscriber:
    def __init__(self, mesh: sandmesh.Mesh) -> None:
        self.link = mesh._caller.link
        self.refused: list[str] = []
        self.heard: list[str] = []

    def subscribe(self, subject: str) -> Callable[[], None]:
        def refused(error: sandmesh.SandmeshError) -> None:
            assert (type(error), error.reason) == (sandmesh.PermissionDeniedError, "subscribe")
            self.refused.append(subject)

        return self.link.subscribe(subject, lambda subject, _body: self.heard.append(subject), refused)

    def use_up(self) -> list[Callable[[], None]]:
        return [self.subscribe(f"evt.v1.acme.run.u-{i}.lost") for i in range(MAX_SUBSCRIPTIONS - count(self.link))]


async def test_of_subscriptions_beyond_the_limit_each_ones_maker_is_told_and_all_others_go_on(backend: Backend) -> None:
    async with backend.connect() as mesh:
        user = _Subscriber(mesh)
        user.use_up()
        subjects = [f"evt.v1.acme.run.r-{i}.lost" for i in range(6)]
        stops = [user.subscribe(subject) for subject in subjects]
        # One that is ended at once is still refused, and its maker wants to know nothing of it.
        stops[-1]()
        await mesh.list()
        assert user.refused == subjects[:-1]
        messages = [{"subject": f"evt.v1.acme.run.{run}.lost", "text": "x"} for run in ("u-0", "r-0", "u-62")]
        backend.order("publish_all", messages=messages)
        await until_async("they are heard", lambda: len(user.heard) == 2)
        assert user.heard == ["evt.v1.acme.run.u-0.lost", "evt.v1.acme.run.u-62.lost"]


async def test_of_a_subject_that_it_may_not_hear_the_maker_of_the_subscription_is_told(backend: Backend) -> None:
    async with backend.connect() as mesh:
        user = _Subscriber(mesh)
        user.subscribe("evt.v1.acme.run.r.lost")
        user.subscribe("evt.v1.other.run.r.lost")
        user.subscribe("evt.v1.other.run.r.gone")()
        await mesh.list()
        assert user.refused == ["evt.v1.other.run.r.lost"]
        await mesh._caller.link.close()
        # It is closed by us, and its credential was not refused.
        with pytest.raises(sandmesh.ConnectionError):
            await mesh.list()


async def test_where_more_than_may_be_are_subscribed_anew_with_the_connection_no_maker_hears_nothing_in_silence(
    backend: Backend,
) -> None:
    async with cuttable_mesh(backend) as (way, mesh):
        user = _Subscriber(mesh)
        user.use_up()
        await mesh.list()
        async with away(way, mesh):
            user.subscribe("evt.v1.acme.run.r.lost")
        await until_async("all are told", lambda: user.refused != [])
        # Which one the server means it does not say.
        assert len(user.refused) == MAX_SUBSCRIPTIONS


async def test_where_the_server_refuses_to_tell_of_events_their_reader_gets_a_typed_error(backend: Backend) -> None:
    async with backend.connect() as mesh:
        stops = _Subscriber(mesh).use_up()
        for events in (mesh.events(), mesh.run("r").events()):
            with pytest.raises(sandmesh.PermissionDeniedError) as caught:
                await anext(events)
            assert caught.value.reason == "subscribe"
        for stop in stops:
            stop()
        await until_async("there is room", lambda: count(mesh._caller.link) == 1)
        reading = asyncio.ensure_future(anext(mesh.run("r").events()))
        await asyncio.sleep(0)
        await mesh.list()
        wire = {"what": "lost", "at": "2026-01-01T00:00:00.000Z", "run": "r", "sandbox": "sb-1"}
        backend.order("publish", subject=run_event_subject("acme", "r", "lost"), text=json.dumps(wire))
        assert (await reading).sandbox == "sb-1"


async def test_where_the_server_refuses_to_tell_of_losses_the_pool_is_asked(backend: Backend) -> None:
    async with backend.connect() as mesh, backend.connect() as other:
        box = await other.acquire("host")
        _Subscriber(mesh).use_up()
        held = await mesh.acquire("host")
        told: list[str] = []
        by_id = mesh.sandbox(box.id)
        held.on_lost(lambda _error: told.append(held.id))
        by_id.on_lost(lambda _error: told.append(box.id))
        # By then the handle by id has asked for its run, and again behind its hearing.
        for _ in range(3):
            await mesh.list()
        await other.release(sandbox=box.id)
        await other.release(sandbox=held.id)
        await until_async("both are told", lambda: sorted(told) == sorted([held.id, box.id]), 30)
