"""Files that do not leave a folder of a real sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Backend

import sandmesh
import sandmesh.sync


async def _through(parts: Any) -> None:
    async for _ in parts:
        pass


async def test_what_a_link_leads_out_to_is_refused_to_each_call(local: Backend, tmp_path: Path) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.exec(
            "mkdir -p /tmp/b/work/sub /tmp/b/out/in; cd /tmp/b; echo secret > out/f; echo inside > work/sub/f; "
            "ln -s ../out work/up; ln -s sub work/in"
        )
        files = box.files.beneath("/tmp/b/work")
        (tmp_path / "f").write_text("mine")
        refused: dict[str, Callable[[], Awaitable[object]]] = {
            "read": lambda: files.read("up/f"),
            "read_text": lambda: files.read_text("../out/f"),
            "write": lambda: files.write("up/f", "x"),
            "append": lambda: files.write("up/f", "x", append=True),
            "stat": lambda: files.stat("up"),
            "exists": lambda: files.exists("up/f"),
            "list": lambda: files.list("up"),
            "remove": lambda: files.remove("up/in", recursive=True),
            "mkdir": lambda: files.mkdir("up/new"),
            "rename": lambda: files.rename("sub", "up/sub"),
            "pack": lambda: _through(files.pack("up")),
            "unpack": lambda: files.unpack("up", bytes(1024)),
            "sha256": lambda: files.sha256("up/f"),
            "chmod": lambda: files.chmod("up/f", 0o777),
            "chown": lambda: files.chown("up/in", uid=0, follow=False),
            "glob": lambda: files.glob("**", "up"),
            "search": lambda: files.search("secret", "up"),
            "watch": lambda: _through(files.watch("up")),
            "upload": lambda: files.upload(tmp_path / "f", "up/g"),
            "upload of a folder": lambda: files.upload(tmp_path, "up/g"),
            "download": lambda: files.download("up/f", tmp_path / "got"),
            "download of a folder": lambda: files.download("up", tmp_path / "got"),
        }
        reasons: dict[str, str | None] = {}
        for name, act in refused.items():
            with pytest.raises(sandmesh.FileError) as failed:
                await act()
            reasons[name] = failed.value.reason
        assert reasons == dict.fromkeys(refused, "EXDEV")
        assert (await box.exec("cat /tmp/b/out/f; ls /tmp/b/out")).stdout.text == "secret\nf\nin\n"
        assert await files.read_text("in/f") == "inside\n"
        assert await files.write("new/f", "written") == 7
        await files.download("in", tmp_path / "got")
        assert (tmp_path / "got/f").read_text() == "inside\n"
        assert await files.glob("**/f") == ["new/f", "sub/f"]
        for root in ("", 5):
            with pytest.raises(sandmesh.InvalidRequestError):
                box.files.beneath(root)  # type: ignore[arg-type]
        with pytest.raises(sandmesh.InvalidRequestError):
            files.beneath("sub")


def test_they_are_there_without_await(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        box.exec("mkdir -p /tmp/w; ln -s /etc/passwd /tmp/w/link")
        with pytest.raises(sandmesh.FileError) as failed:
            box.files.beneath("/tmp/w").read("link")
        assert failed.value.reason == "EXDEV"
