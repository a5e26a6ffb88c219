"""Files of real sandboxes, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tarfile
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from conftest import Backend

import sandmesh
from sandmesh._wire.unpack import Unpacking, unpack_new


async def test_looking_into_files(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        files = box.files
        await files.write("/tmp/t/a.py", "x = 1\n")
        await files.write("/tmp/t/deep/b.py", "y = 2\nX = 3\n", mode=0o600)
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        await files.write("/tmp/t/empty", b"")
        assert await files.sha256("/tmp/t/empty") == empty
        await files.chmod("/tmp/t/empty", 0o751)
        await files.chown("/tmp/t/empty", uid=1234)
        info = await files.stat("/tmp/t/empty")
        assert (info.mode, info.uid) == (0o751, 1234)
        assert await files.glob("**/*.py", "/tmp/t") == ["a.py", "deep/b.py"]
        found = await files.search("x =", "/tmp/t", ignore_case=True)
        assert [(match.path, match.line, match.text) for match in found] == [
            ("a.py", 1, "x = 1"),
            ("deep/b.py", 2, "X = 3"),
        ]
        with pytest.raises(sandmesh.FileError) as failed:
            await files.sha256("/tmp/t/nothing")
        assert failed.value.reason == "ENOENT"


async def watched(box: sandmesh.Sandbox) -> AsyncGenerator[sandmesh.FileChange, None]:
    """Of /tmp/w; has told of /tmp/w/f."""
    changes = box.files.watch("/tmp/w")
    first = asyncio.ensure_future(anext(changes))
    # From when on it watches is not told, so the change is made until it is.
    while not first.done():
        await box.files.write("/tmp/w/f", "x")
    assert first.result().path == "f"
    return changes


async def test_a_watch_tells_what_changes(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.files.mkdir("/tmp/w")
        changes = await watched(box)
        await box.exec("rm /tmp/w/f")
        async for change in changes:
            if change.kind == "removed":
                assert change.path == "f"
                break
        await changes.aclose()


async def test_a_watched_folder_that_was_replaced_is_watched_on(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.files.mkdir("/tmp/w")
        changes = await watched(box)
        await box.exec("mv /tmp/w /tmp/moved; mkdir /tmp/w")
        while (await anext(changes)).kind != "overflow":
            pass
        await box.files.write("/tmp/w/new", "x")
        while (await anext(changes)).path != "new":
            pass
        await box.exec("rm -r /tmp/w")
        with pytest.raises(sandmesh.FileError) as failed:
            async for _ in changes:
                pass
        assert failed.value.reason == "ENOENT"


async def test_a_watch_that_is_taken_back_while_it_begins_leaves_its_place_to_others(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        # More than a sandbox has at once.
        for _ in range(40):
            first = asyncio.ensure_future(anext(box.files.watch("/")))
            await asyncio.sleep(0)
            await box.ping()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first


async def test_a_watch_whose_loop_was_left_leaves_its_place_to_others(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.files.mkdir("/tmp/w")
        # More than a sandbox has at once.
        for turn in range(40):
            changes = await watched(box)
            if turn % 2 == 0:
                await changes.aclose()
                continue
            waiting = asyncio.ensure_future(anext(changes))
            await box.ping()
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting


async def test_files(local: Backend, tmp_path: Path) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        files = box.files
        assert await files.write("/tmp/a/b", "hällo", mode=0o640) == 6
        assert await files.read_text("/tmp/a/b") == "hällo"
        assert await files.read("/tmp/a/b", offset=1, length=2) == "ä".encode()
        info = await files.stat("/tmp/a/b")
        assert (info.type, info.size, info.mode, info.is_file) == ("file", 6, 0o640, True)
        await files.write("/tmp/a/b", b"!", append=True)
        await files.mkdir("/tmp/a/c/d")
        await files.rename("/tmp/a/b", "/tmp/a/e")
        assert [os.path.basename(entry.path) for entry in await files.list("/tmp/a")] == ["c", "e"]
        assert await files.exists("/tmp/a/e") and not await files.exists("/tmp/a/b")
        with pytest.raises(sandmesh.FileError) as caught:
            await files.read("/tmp/none")
        assert caught.value.reason == "ENOENT"
        with pytest.raises(sandmesh.FileError):
            await files.remove("/tmp/a")
        await files.remove("/tmp/a", recursive=True)
        await files.remove("/tmp/a", missing_ok=True)
        big = os.urandom(3_000_000)
        assert await files.write("/tmp/big", big) == len(big)
        assert await files.read("/tmp/big") == big
        assert await files.read("/tmp/big", offset=1_000_000, length=1_500_000) == big[1_000_000:2_500_000]
        assert (await files.read("/proc/self/status")).startswith(b"Name:")
        longest = tmp_path / ("n" * 255)
        await files.download("/tmp/big", longest)
        assert longest.read_bytes() == big and os.listdir(tmp_path) == [longest.name]


async def test_this_machines_own_file_errors_are_of_the_same_class(local: Backend, tmp_path: Path) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        with pytest.raises(sandmesh.FileError) as caught:
            await box.files.upload(tmp_path / "missing", "/tmp/x")
        assert caught.value.reason == "ENOENT" and "on this machine" in str(caught.value)
        (tmp_path / "file").write_text("")
        with pytest.raises(sandmesh.FileError) as caught:
            await box.files.download("/etc/passwd", tmp_path / "file" / "x")
        assert caught.value.reason in ("ENOTDIR", "EEXIST")


async def test_a_new_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("fine"))
        tar.addfile(tarfile.TarInfo("../outside"))
    place = tmp_path / "place"
    place.mkdir()
    with archive.open("rb") as file, pytest.raises(sandmesh.FileError):
        unpack_new(file, os.fsencode(place / "new"), 0o755, 0)
    assert os.listdir(place) == []
    with archive.open("rb") as file, pytest.raises(sandmesh.FileError):
        Unpacking(os.fsencode(place), new=False).take(file)
    assert os.listdir(place) == ["fine"]


async def test_a_folder_that_an_archive_names_twice_gets_what_it_names_last(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        for name, mode, mtime in (("d", 0o700, 1), ("d/e", 0o711, 2), ("./d/e/", 0o750, 3), ("d", 0o755, 4)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, mode, mtime
            tar.addfile(folder)
    with archive.open("rb") as file:
        Unpacking(os.fsencode(tmp_path), new=False).take(file)
    found = [os.stat(tmp_path / name) for name in ("d", "d/e")]
    assert [(stats.st_mode & 0o7777, stats.st_mtime) for stats in found] == [(0o755, 4), (0o750, 3)]


async def test_copies_say_what_they_leave_out_and_keep_names_modes_links_and_times(
    local: Backend, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "shut").mkdir(parents=True)
    (tree / "file").write_text("odd")
    odd = os.path.join(os.fsencode(tree), b"odd\xff" + b"n" * 150)
    os.rename(tree / "file", odd)
    (tree / "file").write_bytes(b"x")
    os.link(tree / "file", tree / "shut" / "same")
    os.symlink("/nowhere", tree / "out")
    os.mkfifo(tree / "fifo")
    os.chmod(tree / "file", 0o4666)
    os.utime(tree / "file", (1, 1_234_567_890.123456))
    os.utime(odd, (1, 1_234_567_890.25))
    (tree / "ancient").mkdir()
    os.utime(tree / "ancient", (1, -86400.5))
    os.chmod(tree / "shut", 0o555)
    os.utime(tree / "out", (5, 5), follow_symlinks=False)
    told: list[tuple[str, int]] = []

    def tell(path: str, count: int) -> None:
        told.append((path, count))

    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.files.upload(tree, "/tmp/t", skipped=tell)
        assert told.pop() == (str(tree / "fifo"), 1)
        await box.exec("mkfifo /tmp/t/shut/one /tmp/t/two", check=True)
        await box.files.download("/tmp/t", tmp_path / "back", skipped=tell)
        assert sorted(told) == [("shut/one", 2), ("two", 2)]
        back = os.fsencode(tmp_path / "back")
        assert sorted(os.listdir(back)) == sorted(set(os.listdir(os.fsencode(tree))) - {b"fifo"})
        info, other = os.stat(tmp_path / "back" / "file"), os.stat(tmp_path / "back" / "shut" / "same")
        assert (info.st_mode & 0o7777, round(info.st_mtime, 6)) == (0o4666, 1_234_567_890.123456)
        assert (info.st_ino, os.stat(tmp_path / "back" / "shut").st_mode & 0o7777) == (other.st_ino, 0o555)
        assert (os.readlink(tmp_path / "back" / "out"), os.lstat(tmp_path / "back" / "out").st_mtime) == ("/nowhere", 5)
        times = (os.stat(os.path.join(back, os.path.basename(odd))).st_mtime, os.stat(back + b"/ancient").st_mtime)
        assert times == (1_234_567_890.25, -86400.5)
        await box.files.write("/tmp/ancient", b"", mtime=-1.25)
        assert (await box.files.stat("/tmp/ancient")).mtime == -1.25
        await box.files.upload(odd, b"/tmp/odd\xff")
        assert (await box.exec("cat /tmp/odd?")).stdout.text == "odd"


async def test_a_single_file_goes_where_cp_would_put_it(local: Backend, tmp_path: Path) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.exec("echo hello > /tmp/f; chmod 751 /tmp/f; touch -d @7 /tmp/f; ln -s f /tmp/l", check=True)
        (tmp_path / "folder").mkdir()
        os.symlink("real", tmp_path / "link")
        (tmp_path / "real").write_text("old")
        await box.files.download("/tmp/f", tmp_path / "folder")
        await box.files.download("/tmp/l", tmp_path / "link")
        await box.files.download("/tmp/l", tmp_path / "copied", follow=False)
        assert (tmp_path / "folder" / "f").stat().st_mtime == 7
        assert ((tmp_path / "link").is_symlink(), (tmp_path / "real").read_text()) == (True, "hello\n")
        assert os.readlink(tmp_path / "copied") == "f"
        reading, writing = os.pipe()
        await box.files.download("/tmp/f", f"/proc/self/fd/{writing}")
        assert os.read(reading, 100) == b"hello\n"
        os.close(reading)
        os.close(writing)
        await box.files.upload(tmp_path / "link", "/tmp/led")
        await box.files.upload(tmp_path / "link", "/tmp/link", follow=False)
        assert [(await box.files.stat(f"/tmp/{name}", follow=False)).type for name in ("led", "link")] == [
            "file",
            "symlink",
        ]


async def test_a_copy_that_fails_says_whether_a_part_of_it_stays(local: Backend, tmp_path: Path) -> None:
    told: list[str] = []
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.exec("mkdir -p /tmp/t/b && echo x > /tmp/t/a && echo x > /tmp/t/b/c", check=True)
        here = tmp_path / "here"
        here.mkdir()
        for inside, partly in (("a", False), ("b", True)):
            (here / inside).mkdir() if inside == "a" else (here / inside).write_text("in the way")
            with pytest.raises(sandmesh.FileError):
                await box.files.download("/tmp/t", here, partial=lambda: told.append("here"))
            assert told == (["here"] if partly else []), inside
            (here / inside).rmdir() if inside == "a" else None
        for inside, partly in (("a", False), ("b", True)):
            await box.exec(f"rm -rf /tmp/there && mkdir -p /tmp/there/a && touch /tmp/there/{inside}x", check=True)
            await box.exec("" if inside == "a" else "cd /tmp/there && rmdir a && touch b")
            told.clear()
            source = tmp_path / "source"
            (source / "b").mkdir(parents=True, exist_ok=True)
            (source / "a").write_text("x")
            (source / "b" / "c").write_text("x")
            with pytest.raises(sandmesh.FileError):
                await box.files.upload(source, "/tmp/there", partial=lambda: told.append("there"))
            assert told == (["there"] if partly else []), inside
        with pytest.raises(sandmesh.FileError):
            await box.files.upload(source, "/tmp/t/a", partial=lambda: told.append("in the way"))
        assert told == ["there"]


async def test_a_tar_stream_goes_both_ways_and_an_append_may_be_long(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        files = box.files
        await files.write("/tmp/a/f", "begin")
        assert await files.write("/tmp/a/f", [b"x" * 300_000, "y"], append=True) == 300_001
        await files.unpack("/tmp/b", files.pack("/tmp/a"))
        assert await files.read("/tmp/b/f") == b"begin" + b"x" * 300_000 + b"y"
        assert (await files.search("y", "/tmp/b")).more is False
        await files.write("/tmp/b/lines", "y\n" * 5)
        assert (await files.search("y", "/tmp/b/lines", limit=2)).more is True


async def test_a_fifo_gets_all_of_a_file_and_its_reader_is_waited_for_by_no_thread(local: Backend, fifo: Path) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.exec("seq 500000 > /tmp/seq", check=True)
        downloading = asyncio.create_task(box.files.download("/tmp/seq", fifo))
        reader = await asyncio.create_subprocess_exec("sha256sum", fifo, stdout=asyncio.subprocess.PIPE)
        told, _ = await reader.communicate()
        await downloading
        assert told.decode().split()[0] == await box.files.sha256("/tmp/seq")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(box.files.download("/tmp/seq", fifo), 0.5)
        # A thread that waits to write would be a writer, and keep the process from ending: there is none.
        reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        assert os.read(reading, 1) == b""
        os.close(reading)


async def test_what_comes_by_a_pipe_is_a_file_there_and_its_writer_is_waited_for_by_no_thread(
    local: Backend, fifo: Path
) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        uploading = asyncio.create_task(box.files.upload(fifo, "/tmp/seq"))
        writer = await asyncio.create_subprocess_shell(f"(seq 250000; sleep 1; seq 250001 500000) > {fifo}")
        await writer.wait()
        await uploading
        await box.exec("seq 500000 | cmp - /tmp/seq", check=True)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(box.files.upload(fifo, "/tmp/none"), 0.5)
        # A thread that waits to read would be a reader: there is none.
        with pytest.raises(OSError, match="No such device or address"):
            os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        for follow in (True, False):
            reading, writing = os.pipe()
            os.write(writing, b"of a pipe")
            os.close(writing)
            await box.files.upload(f"/dev/fd/{reading}", "/tmp/piped", follow=follow)
            os.close(reading)
            assert (await box.files.stat("/tmp/piped", follow=False)).type == "file"
            assert await box.files.read("/tmp/piped") == b"of a pipe"
            await box.files.remove("/tmp/piped")
        assert not await box.files.exists("/tmp/none")


async def test_a_file_that_becomes_shorter_while_it_is_read_is_a_file_error_that_names_it(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        files = box.files
        for stream in (files.read_parts("/tmp/d/f"), files.pack("/tmp/d"), files.pack("/tmp/d/f")):
            # Far more than is sent ahead of its reader.
            assert (await box.exec("mkdir -p /tmp/d && head -c 32M /dev/zero | tr '\\0' x > /tmp/d/f")).ok
            await anext(stream)
            assert (await box.exec("truncate -s 1000 /tmp/d/f")).ok
            with pytest.raises(sandmesh.FileError, match="/tmp/d/f: it became shorter") as failed:
                async for _ in stream:
                    pass
            assert failed.value.reason == "ESTALE"
