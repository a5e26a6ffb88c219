import { CanceledError, connect } from "../mod.ts";

await using mesh = await connect();
await using box = await mesh.acquire({ image: "host" });

// Reading slowly slows the command down, and never fills memory. Leaving the loop ends the command.
const stream = box.stream("for i in 1 2 3; do echo step $i; done; echo done >&2");
for await (const chunk of stream) process.stdout.write(`${chunk.stream} ${chunk.text}`);
console.log((await stream.end).outcome);

// An AbortSignal ends the command's whole process tree in the sandbox.
try {
  await box.exec("sleep 600", { signal: AbortSignal.timeout(100) });
} catch (error) {
  if (!(error instanceof CanceledError)) throw error;
  console.log("given up");
}

// A started command goes on by itself; any client can attach to it by its id.
const command = await box.start("read line; echo got $line", { stdinOpen: true });
await command.stdin.write("a line\n");
console.log((await box.command(command.id).wait()).stdout.text.trim());
