"""client.ts in Python: a trainer for the chaos tests."""

import asyncio
import json
import sys
import threading

import sandmesh


def say(step: str, **more: object) -> None:
    print(json.dumps({"step": step, **more}), flush=True)


def told(error: BaseException) -> dict[str, object]:
    if isinstance(error, sandmesh.SandmeshError):
        return {"code": error.code, "reason": error.reason, "started": error.started}
    return {"code": "untyped", "reason": repr(error)}


async def run(box: sandmesh.Sandbox, command: str) -> None:
    try:
        stream = box.stream(command)
        async for chunk in stream:
            say("running", sandbox=box.id, text=chunk.text)
        say("ended", sandbox=box.id)
    except Exception as error:
        say("ended", sandbox=box.id, **told(error))


def lines(loop: asyncio.AbstractEventLoop, queue: "asyncio.Queue[str | None]") -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(queue.put_nowait, line)
    loop.call_soon_threadsafe(queue.put_nowait, None)


async def main() -> None:
    order = json.loads(sys.argv[1])
    async with sandmesh.connect(lease=order["lease_ms"] / 1000) as mesh:
        acquires = [asyncio.ensure_future(mesh.acquire(image="host")) for _ in range(order.get("count", 1))]
        await asyncio.sleep(0)
        say("asked")
        boxes = await asyncio.gather(*acquires)
        say("acquired", sandboxes=[box.id for box in boxes])
        tasks = [asyncio.ensure_future(run(box, order["command"])) for box in boxes if order.get("command")]
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        threading.Thread(target=lines, args=(asyncio.get_running_loop(), queue), daemon=True).start()
        while (line := await queue.get()) is not None:
            try:
                result = await boxes[0].exec(line.rstrip("\n"), timeout=5)
                say("result", outcome={"type": type(result.outcome).__name__}, stdout=result.stdout.text)
            except Exception as error:
                say("result", **told(error))
        await asyncio.gather(*tasks)


asyncio.run(main())
