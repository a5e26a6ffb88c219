"""Many sandboxes in one run: acquired at once, renewed as one, torn down as one."""

import asyncio
import sys

import sandmesh


async def rollout(run: sandmesh.Run, number: int) -> int:
    try:
        async with await run.acquire(image="host", timeout=120) as box:
            result = await box.exec(f"echo $(({number} * {number}))", timeout=30)
            return int(result.stdout.text)
    except sandmesh.SandboxLostError as lost:
        # The infrastructure's fault, not the agent's: never a reward of 0.
        print(f"rollout {number} was lost: {lost.reason}", file=sys.stderr)
        raise


async def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    async with sandmesh.connect(lease=60) as mesh, mesh.run("example-burst") as run:
        results = await asyncio.gather(*(rollout(run, number) for number in range(count)))
        print("squares:", *results)


asyncio.run(main())
