"""What is awaited to its end leaves nothing to the garbage collector: each generator that it has to end is a task, and
a wake-up of the loop, more."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import Backend


@contextmanager
def left_to_the_collector() -> Iterator[list[str]]:
    """The names of asynchronous generators that were dropped before their end."""
    left: list[str] = []
    hooks = sys.get_asyncgen_hooks()

    def finalize(generator: AsyncGenerator[Any, Any]) -> None:
        left.append(generator.__qualname__)
        if hooks.finalizer is not None:
            hooks.finalizer(generator)

    sys.set_asyncgen_hooks(finalizer=finalize)
    try:
        yield left
        gc.collect()
    finally:
        sys.set_asyncgen_hooks(*hooks)


async def test_nothing_that_comes_to_its_end_leaves_a_generator_behind(simulated: Backend, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_text("a" * 300_000)

    async def source() -> AsyncGenerator[bytes, None]:
        for _ in range(3):
            yield b"x" * 200_000

    async with simulated.connect(lease=30) as mesh:
        box = await mesh.acquire("host")
        with left_to_the_collector() as left:
            await box.exec(["echo", "a"])
            await box.exec("cat", stdin=b"x" * 600_000)
            await box.exec("cat", stdin=source())
            stream = box.stream(["echo", "a"])
            async for _ in stream:
                pass
            await stream.wait()
            await box.files.write("/tmp/a", source())
            await box.files.read("/tmp/a")
            await box.files.upload(tmp_path / "tree", "/tmp/tree")
            await box.files.download("/tmp/tree", tmp_path / "back")
            await box.files.list("/tmp")
            await mesh.list()
        assert left == []
