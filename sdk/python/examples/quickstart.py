"""One sandbox, a few commands, nothing left behind."""

import asyncio

import sandmesh


async def main() -> None:
    async with sandmesh.connect() as mesh:
        async with await mesh.acquire(image="host", cpu=1, memory="512MiB", env={"TASK": "demo"}) as box:
            result = await box.exec("echo hello from $TASK; exit 3", timeout=60)
            match result.outcome:
                case sandmesh.Exited(code):
                    print(f"exited {code}: {result.stdout.text.strip()}")
                case sandmesh.TimedOut():
                    print("too slow, but this much was written:", result.stdout.text)
                case other:
                    print("ended otherwise:", other)

            async for chunk in box.stream("for i in 1 2 3; do echo line $i; done"):
                print(chunk.text, end="")

            await box.files.write("/tmp/data.txt", "some data\n")
            print((await box.exec(["cat", "/tmp/data.txt"], check=True)).stdout.text, end="")


asyncio.run(main())
