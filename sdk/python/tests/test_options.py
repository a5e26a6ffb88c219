"""What a caller may wish of a command or a file reaches the sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Backend

import sandmesh
from sandmesh import TimedOut


async def test_each_option_of_a_command_does_what_it_says(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:

        async def said(line: str, **options: Any) -> str:
            return (await box.exec(line, **options)).stdout.text

        assert await said("umask", umask=0o27) == "0027\n"
        assert await said("nice", nice=7) == "7\n"
        assert await said("ulimit -Sn; ulimit -Hn; ulimit -t", rlimits={"nofile": 77, "cpu": 99}) == "77\n77\n99\n"
        assert await said("echo [$HOME] [$ONLY]", env={"ONLY": "1"}, env_replace=True) == "[] [1]\n"
        assert await said("echo [$HOME]", env={"HOME": None}) == "[]\n"
        assert await said("(sleep 0.2; echo late) & echo early", wait="all") == "early\nlate\n"
        assert await said("echo $(id -u):$(id -g)", user="65534:65534") == "65534:65534\n"
        asked = await box.exec("trap 'echo bye; exit' TERM; echo up; sleep 60 & wait", timeout=0.5, grace=30)
        assert asked.stdout.text == "up\nbye\n"
        assert isinstance(asked.outcome, TimedOut) and asked.outcome.signal == "SIGTERM"
        harder = await box.exec("trap '' TERM; echo up; while :; do sleep 0.05; done", timeout=0.5, grace=0)
        assert isinstance(harder.outcome, TimedOut) and harder.outcome.signal == "SIGKILL"


async def test_each_option_of_a_files_does_what_it_says(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        files = box.files
        for work in (
            files.write("/tmp/none/f", "x", parents=False),
            files.mkdir("/tmp/none/d", parents=False),
        ):
            with pytest.raises(sandmesh.FileError) as failed:
                await work
            assert failed.value.reason == "ENOENT"
        await files.mkdir("/tmp/d", mode=0o750)
        assert (await files.stat("/tmp/d")).mode == 0o750
        await files.write("/tmp/d/owned", "x", uid=1234, gid=5678, mtime=1_600_000_000.25, fsync=True)
        owned = await files.stat("/tmp/d/owned")
        assert (owned.uid, owned.gid, owned.mtime) == (1234, 5678, 1_600_000_000.25)
        await box.exec("cd /tmp/d; ln -s owned link; echo 'a text' | tee .hidden shown too > three")
        assert (await files.stat("/tmp/d/link")).type == "file"
        assert (await files.stat("/tmp/d/link", follow=False)).type == "symlink"
        await files.chown("/tmp/d/link", uid=4321, follow=False)
        assert (await files.stat("/tmp/d/link", follow=False)).uid == 4321
        assert (await files.stat("/tmp/d/link")).uid == 1234
        assert await files.glob("*", "/tmp/d") == ["link", "owned", "shown", "three", "too"]
        assert await files.glob("*d*", "/tmp/d", hidden=True) == [".hidden", "owned"]
        assert sorted(match.path for match in await files.search("text", "/tmp/d")) == ["shown", "three", "too"]
        hidden = await files.search("text", "/tmp/d", hidden=True, files=".*")
        assert [match.path for match in hidden] == [".hidden"]
        some = await files.search("text", "/tmp/d", limit=2)
        assert (len(some), some.more) == (2, True)
