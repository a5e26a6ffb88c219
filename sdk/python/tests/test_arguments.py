"""Whatever is given as an argument: it works, or a typed error names the field. Nothing else is raised."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import Backend
from played import end, play

import sandmesh
from sandmesh._wire.ids import new_uuid7


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def rude() -> Iterator[object]:
    yield b"x"
    yield 5


BAD: list[Any] = [
    *(None, 5, -1, 0, 1.5, math.nan, math.inf, -math.inf, 10**30, 10**5000, True, False),
    *("", "x", "\ud800", "a\udcffb", "a\0b", "ü" * 300_000, "-", ".", "9" * 400, "10h"),
    *(b"", b"x", bytearray(b"x"), memoryview(b"xy")[::2], Path("/x"), Decimal(1), timedelta(-1), timedelta(1)),
    *([], [5], ["\ud800"], [None], [["x"]], {}, {5: 5}, {"A": 5}, {"A": "\ud800"}, {"\ud800": "x"}, {"a": object()}),
    *({"x" * 300_000: 5}, {10**5000: "x"}, {Rude(): "x"}, {("x",) * 1000: "x"}),
    *({"x"}, object(), Rude(), rude(), len, int, ...),
]

Call = Callable[..., Awaitable[Any]]


async def refused_or_fine(call: Call, names: str, given: dict[str, Any]) -> sandmesh.SandmeshError | None:
    """What it raises, which must be a SandmeshError; nothing may take long."""
    try:
        async with asyncio.timeout(5) if hasattr(asyncio, "timeout") else _Forever():
            done = call(**given)
            await done if hasattr(done, "__await__") else None
    except sandmesh.SandmeshError as error:
        # What was given may be of megabytes.
        assert len(str(error)) < 2000 and len(error.field or "") < 200, names
        assert error.field or not isinstance(error, sandmesh.InvalidRequestError), (names, error)
        return error
    return None


class _Forever:
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


COMMAND = dict.fromkeys(
    "cwd env env_replace user umask nice rlimits stdin timeout grace output_limit keep merge wait session id".split()
)
SPEC = dict.fromkeys(
    "image_pull_secrets cpu memory disk pids env user cwd network volumes sidecars extended_resources entrypoint"
    " template provider labels run timeout lease max_life id".split()
)


def calls_of(box: sandmesh.Sandbox) -> list[tuple[Call, dict[str, Any]]]:
    """Each public method with arguments that are fine; each is replaced by what is not."""
    files, some = box.files, new_uuid7()

    async def stream(command: Any = "x", **options: Any) -> None:
        async with box.stream(command, **options) as opened:
            await opened.wait()

    async def on_lost(tell: Any) -> None:
        box.on_lost(tell)

    async def shell(**options: Any) -> None:
        await box.shell(**options)

    async def write_stdin(data: Any) -> None:
        async with box.stream("x", stdin_open=True) as opened:
            await opened.write_stdin(data)

    async def signal(name: Any) -> None:
        async with box.stream("x") as opened:
            await opened.signal(name)

    async def attach(**options: Any) -> None:
        async with box.attach(**options) as opened:
            await opened.wait()

    async def forward(port: Any, **options: Any) -> None:
        async with await box.forward(port, **options):
            pass

    return [
        (box.exec, {"command": "x", **COMMAND}),
        (stream, {"command": ["x"], **COMMAND}),
        (write_stdin, {"data": b"x"}),
        (signal, {"name": "SIGINT"}),
        (on_lost, {"tell": len}),
        (attach, {"command_id": some, "stdout": 0, "stderr": 0}),
        (box.cancel, {"command_id": some}),
        (box.signal, {"command_id": some, "name": "SIGINT"}),
        (shell, {"name": "a", "shell": "/bin/sh", "cwd": "/", "env": {"A": "b", "C": None}}),
        (forward, {"port": 1, "host": "localhost", "local_port": 0, "local_host": "127.0.0.1"}),
        (box.expose, {"local_port": 1, "port": 1, "host": "localhost", "local_host": "127.0.0.1"}),
        (files.read, {"path": "x", "offset": 0, "length": 1}),
        (files.read_text, {"path": "x"}),
        (
            files.write,
            {"path": "x", "content": "y", **dict.fromkeys("append mode uid gid mtime parents fsync".split())},
        ),
        (files.stat, {"path": "x", "follow": True}),
        (files.exists, {"path": "x"}),
        (files.list, {"path": "x"}),
        (files.remove, {"path": "x", "recursive": False, "missing_ok": False}),
        (files.mkdir, {"path": "x", "mode": 0o755, "parents": True}),
        (files.rename, {"source": "x", "target": "y"}),
        (files.sha256, {"path": "x"}),
        (files.chmod, {"path": "x", "mode": 0o755}),
        (files.chown, {"path": "x", "uid": 1, "gid": 1, "follow": True}),
        (files.upload, {"local": __file__, "path": "x", "follow": True, "skipped": len, "partial": len}),
        (
            files.download,
            {"path": "x", "local": "/nowhere/at/all", "follow": True, "skipped": len, "partial": len},
        ),
        (files.unpack, {"path": "x", "tar": b"", "owner": False}),
        (files.glob, {"pattern": "*", "folder": ".", "hidden": False}),
        (files.search, {"text": "x", "path": ".", "ignore_case": False, "files": "*", "hidden": False, "limit": 1}),
    ]


@pytest.mark.limit(180)
async def test_no_argument_of_a_sandbox_raises_anything_but_a_typed_error_that_names_it(backend: Backend) -> None:
    dice, refused = random.Random(3), 0
    async with play(backend) as (played, box):
        error = {"error": {"code": "not_found", "message": "a played sandbox knows nothing", "retryable": False}}
        played.script = lambda verb, request: [end(request) if verb in ("exec", "attach") else error]
        for call, fine in calls_of(box):
            fine = {name: value for name, value in fine.items() if value is not None or name in COMMAND}
            for name in fine:
                for bad in BAD:
                    bad = rude() if hasattr(bad, "send") else bad
                    found = await refused_or_fine(call, f"{call} {name}", {**fine, name: bad})
                    refused += isinstance(found, sandmesh.InvalidRequestError)
            for _ in range(20):
                mixed = {name: dice.choice(BAD) if dice.random() < 0.4 else value for name, value in fine.items()}
                await refused_or_fine(call, str(call), mixed)
        assert refused > 1000
        assert (await box.exec("x")).ok, "the connection lives"


class Empty:
    def __fspath__(self) -> str:
        return ""


class OfBytes:
    def __fspath__(self) -> bytes:
        return b"/etc/hostname"


async def test_an_empty_path_is_refused_and_no_whole_folder_goes_by_mistake(backend: Backend) -> None:
    async with play(backend) as (played, box):
        files = box.files
        paths = {"path", "source", "target", "folder", "local"}
        calls = [
            (call, fine, name)
            for call, fine in calls_of(box)
            if getattr(call, "__self__", None) is files
            for name in fine
            if name in paths
        ]
        assert len(calls) >= 18
        for call, fine, name in calls:
            fine = {key: value for key, value in fine.items() if value is not None}
            # Bytes are for this machine's names that are no UTF-8.
            for bad in ["", Empty(), *([b""] if name == "local" else [OfBytes()])]:
                with pytest.raises(sandmesh.InvalidRequestError) as caught:
                    await call(**{**fine, name: bad})
                assert (call, caught.value.field) == (call, name)
        with pytest.raises(sandmesh.InvalidRequestError) as caught:
            await files.chown("x")
        assert caught.value.field == "uid"
        assert played.verbs() == []


async def test_no_argument_of_a_mesh_raises_anything_but_a_typed_error_that_names_it(backend: Backend) -> None:
    async with backend.connect() as mesh:

        async def run(id: Any, lease: Any) -> None:
            mesh.run(id, lease=lease)

        async def sandbox(id: Any) -> None:
            mesh.sandbox(id)

        calls: list[tuple[Call, dict[str, Any]]] = [
            (run, {"id": "a", "lease": 5}),
            (sandbox, {"id": "a"}),
            (mesh.list, {"run": "a"}),
            (mesh.renew, {"run": "a", "lease": 5}),
            (mesh.release, {"sandbox": "sb-x", "wait": True}),
            (mesh.release, {"lease": new_uuid7()}),
            (mesh.release, {"run": "a"}),
        ]
        for call, fine in calls:
            for name in fine:
                for bad in BAD:
                    await refused_or_fine(call, f"{call} {name}", {**fine, name: bad})
        # What is fine boots, so only what never is.
        never: list[Any] = [object(), Rude(), "\ud800", ["\ud800"], {5: object()}, math.nan, -1, b"x"]
        for name in SPEC:
            for bad in never:
                with pytest.raises(sandmesh.InvalidRequestError) as caught:
                    await mesh.acquire("host", **{name: bad})
                assert (caught.value.field or "").split(".")[0] == name, caught.value
        for bad in [None, 5, "", "\ud800", b"x", object()]:
            with pytest.raises(sandmesh.InvalidRequestError) as caught:
                await mesh.acquire(bad)
            assert caught.value.field == "image"


async def test_no_argument_of_connect_raises_anything_but_a_typed_error(backend: Backend, tmp_path: Path) -> None:
    fine = {"url": "nats://127.0.0.1:1", "credentials": backend.credentials, "timeout": 0.2, "lease": 60}
    for name in [*fine, "tenant", "user"]:
        for bad in BAD:
            found = await refused_or_fine(sandmesh.connect, name, {**fine, name: bad})
            assert found is not None, (name, bad)
    for url in ["http://x", "nats://[::", "nats://h:99999", "nats://", ",", "nats://a b", "nats://h:x"]:
        with pytest.raises(sandmesh.SandmeshError):
            await sandmesh.connect(url, backend.credentials, timeout=1)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"command": None}, "command"),
        ({"command": 5}, "command"),
        ({"command": {"a": "b"}}, "command"),
        ({"command": b"ls"}, "command"),
        ({"command": []}, "command"),
        ({"command": ["a", 5]}, "command.1"),
        ({"command": "echo \ud800"}, "command"),
        ({"stdin": 5}, "stdin"),
        ({"stdin": "\ud800"}, "stdin"),
        ({"stdin": {"a": 1}}, "stdin"),
        ({"stdin": [b"x", 5]}, "stdin"),
        ({"env": 5}, "env"),
        ({"env": {"A": 5}}, "env.A"),
        ({"env": {"A": "\ud800"}}, "env.A"),
        ({"timeout": math.nan}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 10**8}, "timeout"),
        ({"grace": 61}, "grace"),
        ({"output_limit": "9" * 400}, "output_limit"),
        ({"time_out": 5}, "time_out"),
        ({"session": "A B"}, "session"),
        ({"x" * 300_000: 5}, "x" * 57 + "..."),
        ({"env": {"x" * 300_000: 5}}, "env." + "x" * 57 + "..."),
    ],
)
async def test_the_argument_at_fault_is_named(backend: Backend, given: dict[str, Any], field: str) -> None:
    async with play(backend) as (played, box):
        with pytest.raises(sandmesh.SandmeshError) as caught:
            await box.exec(**{"command": "x", **given})
        assert caught.value.field == field
        assert [verb for verb in played.verbs() if verb == "exec"] == [] or field == "stdin"


async def test_none_is_the_default_and_numbers_of_other_libraries_are_numbers(backend: Backend) -> None:
    from fractions import Fraction

    async with play(backend) as (played, box):
        assert (await box.exec("x", **COMMAND)).ok  # type: ignore[arg-type]
        assert (await box.exec("x", timeout=Fraction(3, 2), env={"A": None})).ok  # type: ignore[arg-type]
        asked = [request for verb, request in played.asked if verb == "exec"]
        assert set(asked[0]) == {"version", "id", "shell", "credit_bytes"}
        assert asked[1]["timeout_ms"] == 1500


def test_a_nul_is_named_and_no_pattern_is_shown() -> None:
    from sandmesh._wire.arguments import check_arguments

    for request in ({"argv": ["a\0b"]}, {"argv": ["a"], "cwd": "/a\0b"}, {"argv": ["a"], "env": {"A": "x\0"}}):
        with pytest.raises(sandmesh.InvalidRequestError, match=r": must not contain NUL"):
            check_arguments("sandbox.exec.request", request)


async def test_what_a_sandbox_has_no_option_for_is_named_and_not_repeated_whole(backend: Backend) -> None:
    async with backend.connect() as mesh:
        with pytest.raises(sandmesh.InvalidRequestError) as caught:
            await mesh.acquire("host", **{"x" * 300_000: 5})
        assert caught.value.field == "x" * 57 + "..." and len(str(caught.value)) < 200
