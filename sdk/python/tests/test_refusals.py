"""What an error that a sandbox answers says of the command: whether it was started."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Backend
from played import SANDBOX, chunk, play

import sandmesh


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
